"""Define the inventory ``migration.yml``: its schema, its cross checks, and the messages about mistakes."""
