"""Commands that read ZooKeeper's own data, its directories or its znodes, without an inventory."""
