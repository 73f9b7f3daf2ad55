"""Writes a collection in another format, for `dhtcrawl export`; each format is a file here and a row of `formats`."""
