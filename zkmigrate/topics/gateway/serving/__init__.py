"""The gateway's process: its listeners and connections, its record on disk, and its socket for orders."""
