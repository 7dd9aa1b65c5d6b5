"""The only layer over fabric and paramiko: verified hosts, deadlines, held-open channels.

Start at :mod:`zkmigrate.hosts.transport.ssh`.
"""

from zkmigrate.hosts.transport.channels import Channels
from zkmigrate.hosts.transport.connection import Output
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.program import Program, ProgramPaths
from zkmigrate.hosts.transport.ssh import Limits, Transport

__all__ = ["Channels", "Limits", "Output", "Program", "ProgramPaths", "Transport", "TransportError"]
