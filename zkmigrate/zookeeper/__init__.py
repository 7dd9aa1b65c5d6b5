"""ZooKeeper: formats and proofs, clients, facts about ensembles, and verbs that read disks."""
