"""Kafka clients of several families and releases, at work on one topic: the load of a client matrix.

Each client is two processes, a producer and a consumer with a group of its own, started as::

    PROGRAM produce BOOTSTRAP TOPIC PREFIX FILE RATE
    PROGRAM consume BOOTSTRAP TOPIC GROUP FILE

All families keep one contract:

- The producer sends records, ``RATE`` of them a second. A value is ``PREFIX`` and a number from 0 on, padded
  with spaces to 100 bytes. A key is the same without spaces. ``acks=all``, idempotent. With the variable
  ``ZKMIGRATE_PLAIN`` librdkafka and kafka-python are not idempotent.
  franz-go compresses its batches with gzip, the others do not.
- No id is given to a client twice, and no client is closed and made anew: whatever happens to the cluster,
  the library has to get over it, with the settings that it has by default.
- The client id of a consumer of these two is its group, as it has the group in Java.
- The consumer reads from the earliest offset and commits each second, by the library's own automatic commits.
- SIGTERM ends either: the producer flushes, the consumer commits, and both write their closing line.
- ``FILE`` is of the format that ``zkmigrate.lab.load`` describes: ``opened`` (its ``config`` has
  ``library``, name and release of what the program found), ``ack``, ``failed``, ``stopping``, ``closed``;
  ``opened``, ``consumed``, ``assigned``, ``revoked``, ``closed``; ``kafka`` where a library tells of errors
  of its own, or raises one that it calls retriable. A program that fails writes ``closed`` with the reason
  ``error: …``.

``families`` fetches and builds them, ``matrix`` plays them, ``zkmigrate.lab.judge.clients`` judges. The
programs of Java and Go are in ``setup/clients``.
"""
