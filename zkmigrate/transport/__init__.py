"""The one layer over fabric and paramiko: verified hosts, deadlines, held-open channels.

Nothing else in zkmigrate opens an ssh connection. Start at :mod:`zkmigrate.transport.ssh`.
"""

from zkmigrate.transport.channels import Answer, Channels
from zkmigrate.transport.connection import Output
from zkmigrate.transport.failure import TransportError
from zkmigrate.transport.program import Program, ProgramPaths
from zkmigrate.transport.ssh import Limits, Transport

__all__ = ["Answer", "Channels", "Limits", "Output", "Program", "ProgramPaths", "Transport", "TransportError"]
