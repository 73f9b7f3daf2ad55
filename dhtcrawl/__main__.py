"""`python -m dhtcrawl` is `dhtcrawl`."""

from dhtcrawl.cli.main import main

main()
