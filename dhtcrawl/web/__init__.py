"""A node's window: HTTP for commands, for Prometheus and for a browser."""
