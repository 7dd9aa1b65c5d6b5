"""Clients that only the move and the return use: the replay of transactions."""
