"""Task records between nodes: links to owners, replicas to backups, synchronisation, handing over."""
