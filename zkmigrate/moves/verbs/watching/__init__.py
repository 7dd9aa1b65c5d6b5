"""``watch``: looks again and again after a move, and tells what is not as it should be. Start at ``verb``."""
