"""Composition: builds one node, alone or in a swarm, and stops it in stages."""
