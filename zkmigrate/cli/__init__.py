"""The command line: one file for each verb with options of its own, and what it puts together."""
