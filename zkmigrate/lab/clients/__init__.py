"""Run Kafka clients of several families and releases on one topic: the load of a client matrix.

Each client is two processes, a producer and a consumer with its own group, started as::

    PROGRAM produce BOOTSTRAP TOPIC PREFIX FILE RATE
    PROGRAM consume BOOTSTRAP TOPIC GROUP FILE

All families follow one contract:

- The producer sends ``RATE`` records per second. A value is ``PREFIX`` and a number, from 0 on, padded
  with spaces to 100 bytes. A key is the same without spaces. Producers use ``acks=all`` and are idempotent.
  If the environment variable ``ZKMIGRATE_PLAIN`` is set, librdkafka and kafka-python are not idempotent.
  franz-go compresses its batches with gzip, the others do not compress.
- No id is sent twice, and no client is closed and created again. Whatever happens to the cluster, the library
  has to recover by itself, with its default settings.
- librdkafka's and kafka-python's consumers use the group as client id. Java's default client id contains the
  group too.
- The consumer reads from the earliest offset and commits each second, by the library's own automatic commits.
- SIGTERM stops either: the producer flushes, the consumer commits, and both write their closing line.
- ``FILE`` has the format that ``zkmigrate.lab.load`` describes. A producer writes ``opened`` (its ``config``
  has ``library``: name and release that the program found), ``ack``, ``failed``, ``stopping``, ``closed``.
  A consumer writes ``opened``, ``consumed``, ``assigned``, ``revoked``, ``closed``. Both write ``kafka``
  when a library reports an error of its own, or raises one that it calls retriable. A program that fails
  writes ``closed`` with the reason ``error: …``.

``families`` downloads and builds the clients, ``matrix`` runs them, ``zkmigrate.lab.judge.clients`` judges
them. The Java and Go programs are in ``setup/clients``.
"""
