"""Questions to ZooKeeper's logs and snapshots before a move and after it, answered by Spark.

A job is a function from `Input` to a `Section`; one file each in `zkmigrate.spark.jobs`."""
