"""WARC files: written, read, checked; copies of bodies."""
