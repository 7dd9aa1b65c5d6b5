"""A model world of a planned switch: two clusters, gateways, clients, copiers, and operators who are killed.

Time is simulated and everything is drawn from one seed, so that a run can be repeated. The gateways are the
real ones without their sockets; the engine, its journal and the playbook are the real ones too.
"""
