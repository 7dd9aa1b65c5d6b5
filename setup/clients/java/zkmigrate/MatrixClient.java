package zkmigrate;

import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.util.Collection;
import java.util.Collections;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Java's producer and consumer in the client matrix, with the release of kafka-clients that the class path has.
 *
 * <pre>
 * produce BOOTSTRAP TOPIC PREFIX FILE RATE
 * consume BOOTSTRAP TOPIC GROUP FILE
 * </pre>
 *
 * <p>zkmigrate/lab/clients/__init__.py has the contract, zkmigrate/lab/load/__init__.py the format of the file.
 */
public final class MatrixClient {
    private static final int VALUE_BYTES = 100;
    private static final Duration TICK = Duration.ofMillis(200);

    private final String bootstrap;
    private final String topic;
    private final Lines lines;
    private volatile boolean stopping;

    private MatrixClient(String bootstrap, String topic, Lines lines) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.lines = lines;
    }

    public static void main(String[] args) throws IOException {
        Lines lines = new Lines(new File(args[4]));
        MatrixClient client = new MatrixClient(args[1], args[2], lines);
        Thread worker = Thread.currentThread();
        // SIGTERM runs this hook. The JVM ends with it, so it waits for the worker, which then ends the JVM.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            client.stopping = true;
            try {
                worker.join();
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }));
        int code = 0;
        try {
            String counters = args[0].equals("produce")
                    ? client.produce(args[3], Double.parseDouble(args[5]))
                    : client.consume(args[3]);
            lines.write("closed", "\"reason\":\"ordered\"," + counters);
        } catch (Throwable failure) {
            failure.printStackTrace();
            lines.write("closed", "\"reason\":" + quoted("error: " + failure));
            code = 1;
        }
        lines.close();
        Runtime.getRuntime().halt(code);
    }

    private String produce(String prefix, double rate) throws InterruptedException {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("acks", "all");
        config.put("enable.idempotence", "true");
        config.put("linger.ms", "5");
        AtomicLong acked = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        long sent = 0;
        long interval = (long) (1e9 / rate);
        long next = System.nanoTime();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            while (!stopping) {
                long now = System.nanoTime();
                if (now < next) {
                    Thread.sleep(Math.min(TICK.toMillis(), (next - now) / 1_000_000 + 1));
                    continue;
                }
                // After a stall what was missed is not sent in a burst.
                next = Math.max(next, now - interval) + interval;
                String id = prefix + sent++;
                producer.send(new ProducerRecord<>(topic, id, padded(id)), (told, error) -> {
                    if (error != null) {
                        failed.incrementAndGet();
                        lines.write("failed", place() + ",\"id\":" + quoted(id) + ",\"error\":" + quoted("" + error));
                    } else {
                        acked.incrementAndGet();
                        lines.write("ack", place() + ",\"partition\":" + told.partition() + ",\"offset\":"
                                + (told.hasOffset() ? told.offset() : null) + ",\"id\":" + quoted(id)
                                + ",\"sent_mono_ns\":" + now);
                    }
                });
            }
            lines.write("stopping", "");
            producer.flush();
        }
        return "\"sent\":" + sent + ",\"acked\":" + acked + ",\"failed\":" + failed;
    }

    private String consume(String group) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "true");
        config.put("auto.commit.interval.ms", "1000");
        long consumed = 0;
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(Collections.singleton(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    lines.write("assigned", listed(partitions));
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    lines.write("revoked", listed(partitions));
                }
            });
            while (!stopping) {
                for (ConsumerRecord<String, String> one : consumer.poll(TICK)) {
                    consumed++;
                    lines.write("consumed", place() + ",\"partition\":" + one.partition() + ",\"offset\":"
                            + one.offset() + ",\"id\":" + quoted(one.value().trim()));
                }
            }
        }
        return "\"consumed\":" + consumed;
    }

    private String place() {
        return "\"topic\":" + quoted(topic);
    }

    private static String listed(Collection<TopicPartition> partitions) {
        StringJoiner found = new StringJoiner(",", "\"partitions\":[", "]");
        partitions.forEach(one -> found.add("[" + quoted(one.topic()) + "," + one.partition() + "]"));
        return found.toString();
    }

    private static String padded(String id) {
        return String.format("%-" + VALUE_BYTES + "s", id);
    }

    /** A text as JSON has it. */
    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            if (one == '"' || one == '\\') {
                out.append('\\').append(one);
            } else if (one < ' ') {
                out.append(String.format("\\u%04x", (int) one));
            } else {
                out.append(one);
            }
        }
        return out.append('"').toString();
    }

    /** The file: each line is one write, so that a killed process loses none that it wrote. */
    private static final class Lines {
        private final FileOutputStream out;

        private Lines(File file) throws IOException {
            Files.createFile(file.toPath());
            out = new FileOutputStream(file, true);
            String kind = file.getName().replaceFirst("\\.jsonl$", "");
            write("opened", "\"kind\":" + quoted(kind) + ",\"pid\":" + new File("/proc/self").getCanonicalFile().getName()
                    + ",\"format\":1,\"config\":{\"library\":" + quoted("kafka-clients " + AppInfoParser.getVersion())
                    + "}");
        }

        private synchronized void write(String event, String fields) {
            // System.nanoTime is CLOCK_MONOTONIC, as the other programs of the matrix have it.
            String line = "{\"event\":" + quoted(event) + ",\"mono_ns\":" + System.nanoTime() + ",\"epoch_ms\":"
                    + System.currentTimeMillis() + (fields.isEmpty() ? "" : "," + fields) + "}\n";
            try {
                out.write(line.getBytes(StandardCharsets.UTF_8));
            } catch (IOException full) {
                throw new IllegalStateException(full);
            }
        }

        private void close() throws IOException {
            out.getFD().sync();
            out.close();
        }
    }
}
