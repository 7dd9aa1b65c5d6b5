"""The runbook as Markdown to follow by hand: the same steps and changes as in the run.

``commands`` turns a change into a command line; ``sheet`` turns the changes of a step into boxes to paste;
``page`` assembles the page from the plan, each step's ``by_hand`` and the playbook's manual; ``go_no_go`` is
the page to sign. ``hand.sh`` holds the shell functions of every page.
"""
