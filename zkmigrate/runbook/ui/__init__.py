"""What an operator sees: plain lines, a live view on a terminal, or JSON lines, all made from events."""
