"""What a node keeps: one LevelDB behind one door, the archive, the outputs."""
