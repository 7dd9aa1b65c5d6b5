"""Pure decisions that several steps share."""
