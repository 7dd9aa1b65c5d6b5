"""What some verbs do for a move alone: retire a broker, clean up, list a replay."""
