"""Decisions of the gateway: messages, requests, holds, orders. Nothing here opens a socket."""
