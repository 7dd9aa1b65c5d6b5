"""The gateway's process: listeners, connections, its record on disk and the socket for orders."""
