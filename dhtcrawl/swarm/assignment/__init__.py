"""Who fetches: tasks that owners assign to other nodes, and plans of the policies."""
