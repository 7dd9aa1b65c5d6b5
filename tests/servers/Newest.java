import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A producer and a consumer in a group: {@code ADDRESS TOPIC VALUE}. Prints the offset, then all values. */
public class Newest {
    public static void main(String[] args) throws Exception {
        Map<String, Object> common = Map.of("bootstrap.servers", args[0], "client.id", "app-newest");
        long offset;
        try (var producer =
                new KafkaProducer<>(common, new StringSerializer(), new StringSerializer())) {
            offset = producer.send(new ProducerRecord<>(args[1], 0, null, args[2])).get().offset();
        }
        System.out.println(offset);
        var group = new java.util.HashMap<>(common);
        group.putAll(Map.of("group.id", "newest", "auto.offset.reset", "earliest"));
        try (var consumer =
                new KafkaConsumer<>(group, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[1]));
            for (long seen = -1; seen < offset; ) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(record.value());
                    seen = record.offset();
                }
            }
        }
    }
}
