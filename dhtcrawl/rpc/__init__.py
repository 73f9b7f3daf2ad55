"""How nodes talk: routing over UDP (`server`, `view`), tasks over TCP."""
