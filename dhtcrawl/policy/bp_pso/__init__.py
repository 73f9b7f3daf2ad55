"""`bp_pso`: a net predicts how long each node takes, and tasks are split so that all end together (Zhang et al.)."""
