"""Machines in several regions, on one machine: namespaces, and a router between them that delays, loses and limits."""
