"""The routing plane over UDP: Kademlia, with the faults of the stock library mended."""
