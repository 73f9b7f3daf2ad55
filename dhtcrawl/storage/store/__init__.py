"""LevelDB behind one thread: task records, queues, crawl records."""
