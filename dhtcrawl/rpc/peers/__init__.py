"""Asking a node by its id, over whichever plane reaches it."""
