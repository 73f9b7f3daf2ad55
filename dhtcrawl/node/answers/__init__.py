"""What a node of a swarm answers to people, one file a subject; `dhtcrawl.node.api` is made of them."""
