"""`init`: a first migration.yml from what hosts, ensembles and an Ansible inventory show.

Nothing here opens a client session on ZooKeeper and nothing changes a host: source is asked by four-letter
words and by reading files and processes as the ssh account; the other hosts may be read through sudo. Start
at :mod:`zkmigrate.discovery.init_verb`.
"""
