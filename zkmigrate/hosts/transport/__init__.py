"""The only layer that uses fabric and paramiko: verified hosts, deadlines, channels that stay open.

Start at :mod:`zkmigrate.hosts.transport.ssh`.
"""
