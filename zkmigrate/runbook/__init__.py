"""The runbook on paper: the same steps and changes as the run, as Markdown to follow by hand.

``commands`` turns a change into the line that is typed for it; ``hand`` says per step what is looked at and
what is weaker by hand; ``page`` puts the Markdown together from the plan; ``go_no_go`` is the page to print.
``hand.sh`` holds the shell functions that the page carries.
"""
