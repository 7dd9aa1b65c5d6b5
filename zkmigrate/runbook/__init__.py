"""The runbook: playbooks, steps, changes, findings, the walk with its journal, its verbs and its screen."""
