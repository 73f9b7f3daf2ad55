"""Rules that turn pages into records: what a file of them says, and what they find on a page; without I/O."""
