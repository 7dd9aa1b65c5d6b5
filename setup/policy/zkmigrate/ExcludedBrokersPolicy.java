package zkmigrate;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/**
 * Keeps new topics off brokers that are being removed, as a file on the broker's host says.
 *
 * <p>The file is read at each creation, so nothing has to be told to the broker. Its lines, each at most once:
 *
 * <pre>
 * removal=NAME       what the messages call the removal
 * brokers=4,5        an explicit assignment that names one of these is refused
 * closed_s=300       for so many seconds from the file's modification on, automatic assignments are refused
 * </pre>
 *
 * <p>Kafka shows a policy no automatic assignment, so that one can only be let through or refused. The seconds
 * are a lease: who has closed the creation may die, and topics are created again by themselves. Both times are of
 * one clock, that of the host.
 *
 * <p>No file: nothing is refused. A file that cannot be read, or has another line: every creation is refused,
 * with the reason. Whoever wrote the file relies on it, and nobody would see what it lets through.
 */
public final class ExcludedBrokersPolicy implements CreateTopicPolicy {
    /** The broker's property with the path of the file. */
    public static final String FILE = "zkmigrate.excluded.brokers.file";

    private Path file;

    @Override
    public void configure(Map<String, ?> configs) {
        Object path = configs.get(FILE);
        if (path == null || !Paths.get(path.toString()).isAbsolute()) {
            throw new ConfigException(FILE, path, "an absolute path is needed");
        }
        file = Paths.get(path.toString());
    }

    @Override
    public void validate(RequestMetadata request) {
        Exclusion now = read();
        Map<Integer, List<Integer>> assignments = request.replicasAssignments();
        if (assignments == null) {
            if (now.closed) {
                throw new PolicyViolationException("Topic " + request.topic() + " cannot be created now: a broker"
                        + " stops (removal " + now.removal + "). Try again in some seconds.");
            }
            return;
        }
        assignments.forEach((partition, replicas) -> {
            for (Integer broker : replicas) {
                if (now.brokers.contains(broker)) {
                    throw new PolicyViolationException("Partition " + request.topic() + "-" + partition
                            + " cannot be on broker " + broker + ", which is being removed (removal "
                            + now.removal + ").");
                }
            }
        });
    }

    @Override
    public void close() {}

    private Exclusion read() {
        Exclusion found = new Exclusion();
        try {
            String text = new String(Files.readAllBytes(file), StandardCharsets.UTF_8);
            long seconds = found.parse(text);
            long since = System.currentTimeMillis() - Files.getLastModifiedTime(file).toMillis();
            found.closed = since < seconds * 1000;
        } catch (NoSuchFileException absent) {
            return new Exclusion();
        } catch (IOException | IllegalArgumentException wrong) {
            throw new PolicyViolationException("No topic can be created: " + file + " is wrong: " + wrong);
        }
        return found;
    }

    private static final class Exclusion {
        private final Set<Integer> brokers = new TreeSet<>();
        private String removal = "without a name";
        private boolean closed;

        /** Take the lines over, and return for how many seconds creation is closed. */
        private long parse(String text) {
            long seconds = 0;
            Set<String> seen = new TreeSet<>();
            for (String line : text.split("\n")) {
                if (line.isEmpty()) {
                    continue;
                }
                int at = line.indexOf('=');
                String key = line.substring(0, Math.max(at, 0));
                String value = line.substring(at + 1);
                if (!seen.add(key)) {
                    throw new IllegalArgumentException("a second line " + line);
                }
                switch (key) {
                    case "removal":
                        removal = value;
                        break;
                    case "brokers":
                        for (String id : value.split(",")) {
                            brokers.add(Integer.valueOf(id));
                        }
                        break;
                    case "closed_s":
                        seconds = Integer.parseInt(value);
                        break;
                    default:
                        throw new IllegalArgumentException("unknown line " + line);
                }
            }
            return seconds;
        }
    }
}
