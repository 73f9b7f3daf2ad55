"""How a node joins, keeps up with the view, repairs and leaves; which peers it remembers."""
