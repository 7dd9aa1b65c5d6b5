"""Put recorded load on a lab: how its processes start and stop, and the format of their recordings.

Each *kind* of load is one process, started as::

    python -m zkmigrate.lab.load KIND --config load.json --out DIR

and writes ``DIR/KIND.jsonl``: one JSON object per line, appended with one write each and never rewritten.
On SIGTERM every kind flushes what is in flight, verifies what it can, and writes the closing line.
``zkmigrate.lab.judge`` reads these files and judges them; nothing here does.

From a program: ``runner_for(lab, directory)`` (``load.target``) or ``LoadRunner(directory, config)``
(``load.runner``), then ``start``, ``wait_flowing``, ``finish``; on the command line ``zkmigrate lab load``.

Every line
    ``event`` (word), ``mono_ns`` (CLOCK_MONOTONIC, nanoseconds: comparable between all processes of one
    machine, network namespaces included) and ``epoch_ms`` (wall clock, milliseconds).
    Durations are in seconds and end in ``_s``; znode zxids and session ids are hex strings (``"0x1f"``).

First and last lines of every kind
    ``opened``  ``kind``, ``pid``, ``format`` (1), ``config`` (the process's configuration)
    ``stopping`` the stop signal arrived: nothing new is sent after it (the consumer does not write it)
    ``closed``  ``reason`` and counters of the kind. A file without it is incomplete.

producer (idempotent, acks=all; record value = its id, ``"p-17"``)
    ``ack``      ``topic``, ``partition``, ``offset``, ``id``, ``sent_mono_ns``; the line's own time is the
                 acknowledgement's
    ``failed``   ``topic``, ``partition``, ``id``, ``error``: the client gave up on the record
                 (it may be in the log)
    ``unsent``   ``id``, ``error``: the client returned it as not sent (it may be in the log)
    ``rate``     ``rate``, ``step``: the plan's rate from now on, in records per second
    ``kafka``    ``error``, ``fatal``: client-level errors, such as a broker going away
    ``closed``   ``sent``, ``acked``, ``failed``, ``unsent``, ``unflushed`` (without an answer
                 when the flush deadline passed)

consumer (one group over all topics, from the earliest offset)
    ``consumed`` ``topic``, ``partition``, ``offset``, ``id``
    ``assigned`` / ``revoked`` / ``lost``  ``partitions`` (``[["load-a", 0], …]``)
    ``kafka``    ``error``, ``fatal``
    ``drain``    SIGUSR1 arrived: ``high`` (``{"load-a/0": n}``) are the high watermarks to read up to
    ``drained``  ``complete``, ``position`` and ``high`` per partition
    ``closed``   ``consumed``, ``drained``

metadata (admin requests through the brokers)
    ``op``       ``op`` (``create_topic`` | ``alter_config``), ``topic``, ``value``, ``outcome`` (``ok`` |
                 ``failed`` | ``unknown``), ``error``, ``started_mono_ns``
    ``verified`` ``complete``, ``missing_topics``, ``wrong_configs``, ``error``: every acknowledged
                 change read back
    ``closed``   ``ok``, ``failed``, ``unknown``

raw (one client per dest host, connected to that host only; sequential creates under
``<chroot>/zkmigrate-raw/<host>/n-``)
    ``ack``      ``host``, ``path``, ``zxid`` (of the reply: the create's czxid), ``sent_mono_ns``
    ``unknown``  ``host``, ``count`` (1): a create that got no answer because the connection broke
    ``error``    ``host``, ``error``, ``zxid``: the server refused a create
    session events, below
    ``closed``   ``acked``, ``unknown``, ``errors`` per host

tenant (another chroot, on source)
    ``ack``      ``op`` (``set`` | ``create`` | ``ephemeral`` | ``delete`` | ``large``), ``path``, ``zxid``,
                 ``sent_mono_ns``, and ``value`` for sets
    ``unknown``  ``op``, ``count`` (1); ``error``  ``op``, ``path``, ``error``
    session events
    ``verified`` ``complete``, ``ephemerals``, ``counters``, ``creates`` (numbers of acknowledged ones),
                 ``ephemerals_lost``, ``counters_wrong``, ``creates_missing`` (lists), ``error``
    ``closed``   ``acked``, ``unknown``, ``errors``

samples (moving and under-replicated partitions, each second, from ``brokers`` and from ``zookeeper``)
    ``sample``   ``source``, ``took_s``, ``partitions``, ``in_flight``, ``under_replicated``, ``lack_two``,
                 ``offline``, ``held`` (replicas by broker), ``rates``: see ``load.samples.Sample``
    ``settings`` ``source``, ``moment`` (``first`` | ``last``), ``throttles``: all throttle settings
    ``unseen``   ``source``, ``error``: this source did not answer
    ``closed``   number of samples by source

Session events (raw with ``host``)
    ``connected``       ``session``, ``renewed`` (the same session on a new connection)
    ``disconnected``    ``session``, ``reason``
    ``connect_failed``  ``session``, ``reason``; not repeated while the reason stays the same
    ``expired``         ``session``: the server answers that the session has expired; a new one follows

``DIR/log.json`` (``python -m zkmigrate.lab.load again``), what the topics contain after all clients stopped
    ``{"complete", "error", "high": {"load-a/0": n}, "records": {"load-a/0": [[offset, id], …]}}``

``DIR/tree-HOST.json`` (``python -m zkmigrate.lab.load tree``), the listing that raw acks are compared with
    ``{"host", "root", "complete", "error", "nodes": {path: czxid}}``
"""
