"""A closed swarm: the secret that its members share, and what is derived from it."""
