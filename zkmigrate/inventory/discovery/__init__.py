"""Draft migration.yml for `init` from hosts, ensembles and an Ansible inventory.

It changes no host and opens no ZooKeeper session. It asks source by four-letter words and reads its files and
processes as the ssh account; it may read the other hosts through sudo. Start at
:mod:`zkmigrate.inventory.discovery.init_verb`.
"""
