"""One page of HTML about a crawl, for `dhtcrawl report`: counted from its lines, and told to a person."""
