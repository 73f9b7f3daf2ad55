"""One page from the web: transport, address guard, decoding, links, robots, politeness."""
