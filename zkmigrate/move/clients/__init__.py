"""Clients that only the move and the return need: the replay of transactions."""
