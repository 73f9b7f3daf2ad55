"""The command as its users meet it: a process, a web server, a directory, an exit code.

`nginx` and `stub` serve, `crawler` runs `python -m dhtcrawl`, `outputs` and
`archive` read what it wrote, `truth` says by other means what should be there.
"""
