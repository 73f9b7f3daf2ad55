"""Host leases and shared robots.txt: one gatekeeper a host, and the nodes that hold its leases."""
