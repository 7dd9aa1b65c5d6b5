"""Load on the lab, real and recorded: what each process writes down, and how it is started and stopped.

Each *kind* of load is one process, started as::

    python -m zkmigrate.lab.load KIND --config load.json --out DIR

and writes ``DIR/KIND.jsonl``: one JSON object per line, appended with one write each and never rewritten.
SIGTERM ends every kind in order: flush what is in flight, verify what can be verified, write the closing
line. ``zkmigrate.lab.judge`` reads these files and decides; nothing here judges.

From a program: ``runner_for(lab, directory)`` (``load.target``) or ``LoadRunner(directory, config)``
(``load.runner``), then ``start``, ``wait_flowing``, ``finish``; on the command line ``zkmigrate lab load``.

Every line
    ``event`` (word), ``mono_ns`` (CLOCK_MONOTONIC, nanoseconds: comparable between all processes of one
    machine, network namespaces included) and ``epoch_ms`` (wall clock, milliseconds).
    Durations are in seconds and end in ``_s``; znode zxids and session ids are hex strings (``"0x1f"``).

First and last lines of every kind
    ``opened``  ``kind``, ``pid``, ``format`` (1), ``config`` (what the process was given)
    ``stopping`` (not the consumer's) the order to end came: nothing new is sent from here on
    ``closed``  ``reason`` and counters of the kind. A file without it was cut short.

producer (idempotent, acks=all; record value = its id, ``"p-17"``)
    ``ack``      ``topic``, ``partition``, ``offset``, ``id``, ``sent_mono_ns``; the line's own time is the
                 acknowledgement's
    ``failed``   ``topic``, ``partition``, ``id``, ``error``: the client gave the record up
                 (it may be in the log)
    ``unsent``   ``id``, ``error``: the client gave it back as not sent (it may be in the log)
    ``rate``     ``rate``, ``step``: from here on the plan asks for so many records per second
    ``kafka``    ``error``, ``fatal``: client-level errors, such as a broker going away
    ``closed``   ``sent``, ``acked``, ``failed``, ``unsent``, ``unflushed`` (no answer when the
                 flush deadline passed)

consumer (one group over all topics, from the earliest offset)
    ``consumed`` ``topic``, ``partition``, ``offset``, ``id``
    ``assigned`` / ``revoked`` / ``lost``  ``partitions`` (``[["load-a", 0], …]``)
    ``kafka``    ``error``, ``fatal``
    ``drain``    SIGUSR1 came: ``high`` (``{"load-a/0": n}``) are the high watermarks to read up to
    ``drained``  ``complete``, ``position`` and ``high`` per partition
    ``closed``   ``consumed``, ``drained``

metadata (admin requests through the brokers)
    ``op``       ``op`` (``create_topic`` | ``alter_config``), ``topic``, ``value``, ``outcome`` (``ok`` |
                 ``failed`` | ``unknown``), ``error``, ``started_mono_ns``
    ``verified`` ``complete``, ``missing_topics``, ``wrong_configs``, ``error``: every acknowledged
                 change read back
    ``closed``   ``ok``, ``failed``, ``unknown``

raw (one pipelined client per dest host, connected to that host only; sequential creates under
``<chroot>/zkmigrate-raw/<host>/n-``)
    ``ack``      ``host``, ``path``, ``zxid`` (of the reply: the create's czxid), ``sent_mono_ns``
    ``unknown``  ``host``, ``count``: creates sent whose answer the lost connection swallowed
    ``error``    ``host``, ``error``, ``zxid``: the server refused a create
    session events, below
    ``closed``   ``acked``, ``unknown``, ``errors`` per host

tenant (another chroot, on source)
    ``ack``      ``op`` (``set`` | ``create`` | ``ephemeral`` | ``delete`` | ``large``), ``path``, ``zxid``,
                 ``sent_mono_ns``, and ``value`` for sets
    ``unknown``  ``op``, ``count``; ``error``  ``op``, ``path``, ``error``
    session events
    ``verified`` ``complete``, ``ephemerals``, ``counters``, ``creates`` (how many of each were promised),
                 ``ephemerals_lost``, ``counters_wrong``, ``creates_missing`` (lists), ``error``
    ``closed``   ``acked``, ``unknown``, ``errors``

samples (what moves and what is under-replicated, each second, from ``brokers`` and from ``zookeeper``)
    ``sample``   ``source``, ``took_s``, ``partitions``, ``in_flight``, ``under_replicated``, ``offline``,
                 ``held`` (replicas by broker), ``rates``: see ``load.samples.Sample``
    ``settings`` ``source``, ``moment`` (``first`` | ``last``), ``throttles``: all throttle settings
    ``unseen``   ``source``, ``error``: this one did not answer
    ``closed``   samples by source

Session events (raw with ``host``; tenant with the server's address in ``host``)
    ``connected``       ``session``, ``timeout_ms``, ``renewed`` (the same session on a new connection)
    ``disconnected``    ``session``, ``reason``
    ``connect_failed``  ``session``, ``reason``, ``attempts`` (how many in a row had this reason)
    ``expired``         ``session``: the server says the session is gone; a new one follows

``DIR/log.json`` (``python -m zkmigrate.lab.load again``), what the topics hold once all clients have stopped
    ``{"complete", "error", "high": {"load-a/0": n}, "records": {"load-a/0": [[offset, id], …]}}``

``DIR/tree-HOST.json`` (``python -m zkmigrate.lab.load tree``), the listing that raw acks are compared with
    ``{"host", "root", "complete", "error", "nodes": {path: czxid}}``
"""
