"""The only layer over fabric and paramiko: verified hosts, deadlines, held-open channels.

Start at :mod:`zkmigrate.hosts.transport.ssh`.
"""
