"""What a host shows, as typed facts."""
