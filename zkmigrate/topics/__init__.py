"""Topics across two clusters: the mirror, the gateway, and the switch of clients between them."""
