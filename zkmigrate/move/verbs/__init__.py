"""The verbs that only a move has: retire a broker, list a replay, read a finished move."""
