"""Readers of ZooKeeper's own files, messages and answers, which work without ZooKeeper.

The formats are those of ZooKeeper 3.4 to 3.9, as its servers write them, encoded as in `jute`. Names of
records and fields are those of ZooKeeper's `zookeeper.jute`.

**Transaction log**, `log.<hex zxid of its first record>` (`txnlog` reads one, `logdir` a directory of them)

| part | bytes |
|---|---|
| FileHeader | `ZKLG`, int version 2, long dbid |
| each record | long Adler-32 of the payload, int length, payload, byte 0x42 |
| end | zeros: the server grows the file ahead of its writes; or the file's end |

**Payload of a record** (`txn`): TxnHeader, the body by its type, TxnDigest or nothing; acl: a vector of ACL

| type | body | fields | since |
|---|---|---|---|
| | TxnHeader | long clientId, int cxid, long zxid, long time (ms), int type | |
| 1 create, 15 create2 | CreateTxn | path, data, acl, boolean ephemeral, int parentCVersion | 15: 3.5 |
| 2 delete, 20 deleteContainer | DeleteTxn | path; 20 also for a TTL znode that ran out | 20: 3.5 |
| 5 setData, 16 reconfig | SetDataTxn | path, data, int version; 16: of `/zookeeper/config`, -1 | 16: 3.5 |
| 7 setACL | SetACLTxn | path, acl, int version (the new aversion) | |
| 13 check | CheckVersionTxn | path, int version; in a multi only | |
| 14 multi | MultiTxn | vector of Txn: int type, buffer body; 1 2 5 13 15 19 20 21 -1 | |
| 19 createContainer | CreateContainerTxn | path, data, acl, int parentCVersion | 3.5 |
| 21 createTTL | CreateTTLTxn | path, data, acl, int parentCVersion, long ttl (ms) | 3.5.3 |
| -1 error | ErrorTxn | int err | |
| -10 createSession | CreateSessionTxn | int timeOut (ms) | |
| -11 closeSession | CloseSessionTxn | nothing; since 3.6 a vector of the ephemerals' paths | |
| | TxnDigest | int version 2, long treeDigest; behind every type but error | 3.6 |
| | ACL | int perms, string scheme, string id | |

A multi with an error in it has no effect. Its operations have no zxid of their own. Logs do not name the
ephemerals that a closeSession of 3.4 or 3.5 deleted: `effect` derives them.

**Snapshot**, `snapshot.<hex zxid>`, or with `.gz` or `.snappy` behind it (`snapname`, `snapstream`);
`snapshot` reads it, `seal` only checks it

| part | bytes | since |
|---|---|---|
| FileHeader | `ZKSN`, int version 2, long dbid -1 | |
| sessions | int count, each long id, int timeout (ms) | |
| ACL table | int count, each long id, vector of ACL | |
| nodes, pre-order | string path (root: empty), buffer data, long ACL id (-1: open), StatPersisted | |
| StatPersisted | long czxid, mzxid, ctime, mtime; int version, cversion, aversion; | |
| | long ephemeralOwner, pzxid | |
| end of the nodes | string `/` | |
| seal | long Adler-32 of all before it, string `/` | |
| digest, seal | long zxid, int version 2, long digest; all 0 but the version: unknown | 3.6 |
| last zxid, seal | long lastProcessedZxid | 3.9 |

ephemeralOwner is a session, 0, 1 << 63 for a container, or for a TTL the bytes ff 00 00 and 5 bytes of ms.
A server can switch off everything after the first seal, so its absence is no damage.

| name ends in | the file is (3.6+, `snapshot.compression.method`) |
|---|---|
| the zxid | the content itself |
| `.gz` | one gzip member |
| `.snappy` | `82 53 4e 41 50 50 59 00`, int 1, int 1, blocks: int length, raw snappy of 32 KiB at most |

Seals count uncompressed bytes. The digest's formula is in the tests that check it
(`tests/unit/zookeeper/data/whole_tree.py`). **zoo.cfg**: `zoocfg`; **four-letter answers**:
`four_letter_words`.

These modules build on them:

| module | content |
|---|---|
| `tail` | the newest durable zxid |
| `effect` | what a transaction does |
| `tree` | the state of a subtree at a zxid |
| `delta` | a log's changes of a subtree after a zxid |
| `subtree` | the largest zxids of a subtree's znodes, also from a server (`messages`) |
| `sums` | a comparison of subtrees in bounded memory |
| `histories` | two logs compared |
| `proofs` | proofs that dest holds the same subtree as source |

The readers raise the errors of `errors`. A log that a crash cut off is no error: `txnlog.EndKind` says
whether a log ends exactly after a record, in zero padding, or torn. Zxids are plain integers (`zxid`);
session ids are signed longs, as in records (`session`).

Sources: zookeeper.jute, FileTxnLog, FileSnap, SnapStream, SerializeUtils and DataTree of Apache ZooKeeper,
and directories of real servers of each of these versions, which the tests read.
"""
