"""The steps of the runbooks: one file each, its undo beside it.

Every module opens with the words that the interactive run and the printed runbook show: What, Why now,
Clients may notice, Way back, Proof.
"""
