"""Bodies of pages on further nodes: copies, heirs, what is handed out to gatherers."""
