"""The model world: takes Changes, answers looks with wire text, and lets time pass.

It exists so that every playbook can be stopped after each change and walked both ways in seconds. What it
models was measured on real ensembles; the lab's parity drills compare the two.
"""
