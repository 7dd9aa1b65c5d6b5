"""Reach hosts over ssh, change them with zkm-host, and read facts about them."""
