"""The whole swarm in one process: virtual time, a seeded web, the same twice."""
