"""Delivery to other nodes: one bounded queue a node, batches, credit, retries; every part that sends items uses it."""
