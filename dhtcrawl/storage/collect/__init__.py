"""Merges the outputs of many nodes."""
