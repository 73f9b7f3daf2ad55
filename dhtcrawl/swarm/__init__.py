"""A node among others: who is there, what they ask, how a node comes and goes, and its crawls."""
