"""What a crawl leaves for people: pages, index, skipped URLs, summary; and their check."""
