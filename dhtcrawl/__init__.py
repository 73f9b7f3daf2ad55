"""dhtcrawl: a distributed web crawler on a Kademlia DHT, without a master."""

__version__ = "0.1.0"
