"""Writes a crawl's outputs (pages, index, skipped URLs, summary) and verifies them."""
