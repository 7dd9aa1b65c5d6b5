"""The steps of the runbooks, one module for each step, together with its undo.

Every module begins with the texts that the interactive run and the printed runbook show: What, Why now,
Clients may notice, Way back, Proof.
"""
