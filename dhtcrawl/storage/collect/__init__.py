"""Outputs of many nodes brought together."""
