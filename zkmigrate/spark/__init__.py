"""Analyse ZooKeeper's logs and snapshots before and after a move, with Spark.

A job is a function from `Input` to a `Section`; each has its own file in `zkmigrate.spark.jobs`.
"""
