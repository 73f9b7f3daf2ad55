"""The commands. Nothing imports this package; it imports everything."""
