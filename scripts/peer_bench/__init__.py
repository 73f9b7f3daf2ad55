"""The parts of `bench_peers.py` and `bench_smoke.py`: sites, crawlers, measuring, reports."""
