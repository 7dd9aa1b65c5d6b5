"""Define the command line: one file for each verb with options of its own, and one that assembles them."""
