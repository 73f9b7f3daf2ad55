"""Virtual tasks, which name what to look for, and the actual tasks that they become (Yu et al. 2014); without I/O."""
