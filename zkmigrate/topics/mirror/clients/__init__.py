"""The mirror's connections to both clusters, and the copier."""
