"""Who fetches a task. Pure cores: they take values and `now`, and rank nodes; leases and I/O are other rooms'."""
