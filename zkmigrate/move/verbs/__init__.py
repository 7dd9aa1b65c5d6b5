"""What some verbs do for a move alone: retire a broker, watch after it, clean up, list a replay."""
