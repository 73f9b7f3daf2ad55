"""A crawl over all nodes: its record, coordinator, termination waves, page blocks, audit, reopening."""
