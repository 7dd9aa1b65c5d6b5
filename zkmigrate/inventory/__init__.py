"""The inventory ``migration.yml``: its schema, its cross checks, and what it says about a mistake."""
