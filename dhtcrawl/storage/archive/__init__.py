"""Writes, reads and checks WARC files; keeps copies of other nodes' bodies."""
