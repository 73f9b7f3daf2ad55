"""The experiments of the five papers, each a list of rows for `scripts/bench_policies.py`."""
