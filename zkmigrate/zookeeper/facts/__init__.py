"""What servers and disks of an ensemble show, as typed facts."""
