"""What to raise where SQLite or a directory for temporary files fails."""

from __future__ import annotations

import sqlite3
from typing import Final

from dhtcrawl.errors import StorageError, StorageFull

_REMEDY: Final = "free some space there, or name another directory for temporary files by TMPDIR"


def scratch_error(error: sqlite3.Error, what: str) -> StorageError:
    """The error for a temporary database; `what` says what cannot be done, and where."""
    full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return StorageFull(f"{what}: no space left; {_REMEDY}") if full else StorageError(f"{what}: {error}; {_REMEDY}")


def no_scratch(error: OSError) -> StorageFull:
    """The error where no directory for temporary files takes anything, mostly since the disk is full."""
    return StorageFull(f"no directory for temporary files can be written ({error.strerror or error}); {_REMEDY}")
