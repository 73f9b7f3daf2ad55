"""Keeps task records, queues and crawl records in LevelDB, on one thread."""
