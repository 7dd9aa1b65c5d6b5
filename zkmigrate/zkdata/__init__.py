"""ZooKeeper's own data, read without ZooKeeper: pure functions over bytes and random-access readers.

Formats of ZooKeeper 3.4 to 3.9, all integers big-endian (see `jute` for the encoding):

transaction log, `log.<hex zxid of its first record>` `ZKLG`, int 2, long dbid; then records of long
    Adler-32 of the payload, int length, payload, byte 0x42; then zeros. `txnlog` reads one file, `logdir` a
    directory of them, `txn` decodes payloads. snapshot, `snapshot.<hex zxid>[.gz]` `ZKSN`, int 2, long
    dbid, sessions, ACL table, nodes, seals. `snapshot` reads it, `seal` only checks it. zoo.cfg and
    four-letter answers `zoocfg`, `words`.

On top of them: `tail` (the newest durable zxid), `tree` (the state of a subtree at a zxid), `delta` (what a
log holds after a zxid that concerns a subtree). Every error is a `errors.ZkDataError` that names file and
offset, or line. Zxids are plain integers (`zxid`); session ids are signed longs, as records carry them
(`session`).
"""
