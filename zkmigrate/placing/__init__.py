"""What the verb ``placement`` does with a plan: it writes files and pages, and prints the report."""
