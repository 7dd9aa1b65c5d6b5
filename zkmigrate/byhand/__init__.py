"""The runbook on paper: the same steps and changes as the run, as Markdown to follow by hand.

``commands`` turns a change into the line that is typed for it; ``sheet`` makes the boxes of a step from its
changes; ``page`` puts the Markdown together from the plan, from what each step says of itself (``by_hand``)
and from the playbook's manual; ``go_no_go`` is the page to print. ``hand.sh`` holds the shell functions that
the page of any runbook carries.
"""
