"""Show a run to its operator: plain lines, a live view on a terminal, or JSON lines, all made from events."""
