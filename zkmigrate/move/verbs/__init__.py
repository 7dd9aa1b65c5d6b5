"""The work of the verbs that only a move has: retire a broker, clean up, list a replay."""
