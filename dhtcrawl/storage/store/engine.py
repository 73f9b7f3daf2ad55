"""The store's `Engine` on LevelDB, by plyvel: an ordered map of bytes with atomic batches.

`dhtcrawl.storage.store.memory.MemoryEngine` is the fake that ships with it. Both pass
`tests/storage/test_engine_contract.py`. Calls block; `dhtcrawl.storage.store.committer` keeps them off the event loop.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import plyvel

from dhtcrawl.errors import StorageError, StorageFull
from dhtcrawl.storage.store.txn import Batch

OPEN_FILES_MAX = 200  # of LevelDB's tables
# LevelDB maps its tables: what was read of one counts as the process's memory until the database is closed.
# To open it again takes some 5 ms of CPU.
SCANNED_BYTES_MAX = 4 << 20
# LevelDB counts each get that asks one table in vain before another, and after a hundred merges the former into all
# that it overlaps: of a large store, most of its tables. Iterators are not counted (decision 0097).
LARGE_BYTES = 64 << 20
# A look-up by iterator takes some 10 µs, and passes all that was removed behind a key that is not there: 20 ms where
# 150,000 in a row were. So much of the thread's CPU beyond what is usual has the store read by gets.
SLOW_S, USUAL_S = 1e-3, 1e-4
_WRITES_BETWEEN_LOOKS = 256
_CUT_OFF = re.compile(r"\.(?:ldb|sst): Invalid argument$")
_FIRST_MANIFEST = b"MANIFEST-000001\n"  # what CURRENT says of a database whose first log is yet to be made


class LevelEngine:
    """A LevelDB database; only one process at a time can open a directory.

    A long scan closes it on its way and opens it again, unless another scan is under way, or something was written
    since it began, which it must not see. If that fails the database stays closed.

    Of a large store `get_many` reads by an iterator, which all calls between two writes share.
    """

    def __init__(
        self,
        path: Path,
        *,
        cache_bytes: int = 8 << 20,
        write_buffer_bytes: int = 2 << 20,
        scanned_bytes_max: int = SCANNED_BYTES_MAX,
        large_bytes: int = LARGE_BYTES,
        new: bool = True,
    ) -> None:
        """A scan lets go of the tables it has read after `scanned_bytes_max` of keys and values.

        The store is large when its tables have `large_bytes`. `new`: a database is made where there is none.

        Raises:
            StorageError: it cannot be opened.
        """
        self._path = path
        self._cache_bytes = cache_bytes
        self._write_buffer_bytes = write_buffer_bytes
        self._scanned_bytes_max = scanned_bytes_max
        self._large_bytes = large_bytes
        self._scans = 0  # under way
        self._writes = 0
        self._reader: Any = None  # the iterator of a large store; it does not see what is written after it was made
        self._db = self._opened(new=new)
        self.large = self._is_large()

    # With Bloom filters a miss, the usual answer to "URL seen?", costs no
    # disk read (LevelDB doc/index.md, "Filters"; 10 bits a key give 1 %).
    def _opened(self, *, new: bool) -> Any:
        """The database; `new`: one is made where there is none."""
        try:
            if new:
                self._path.mkdir(parents=True, exist_ok=True)
            _check_files(self._path)
            return plyvel.DB(
                os.fsencode(self._path),  # a name need not be UTF-8
                create_if_missing=new,
                bloom_filter_bits=10,
                # What a page brings is written over and over by LevelDB's compactions, and most of it is digests
                # (decision 0080). Compressed blocks of before are read as ever.
                compression=None,
                lru_cache_size=self._cache_bytes,
                write_buffer_size=self._write_buffer_bytes,
                max_open_files=OPEN_FILES_MAX,
                # A hole in the log is to be reported as damage, not taken for the log's end.
                paranoid_checks=True,
            )
        except (plyvel.Error, OSError) as error:
            raise storage_error(error, f"cannot open the store {self._path}") from error

    def _is_large(self) -> bool:
        large: bool = self._db.approximate_size(b"", b"\xff") >= self._large_bytes
        return large

    # Without checksums LevelDB can miss keys in a damaged block, and a page that was
    # fetched would count as never seen.
    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key, verify_checksums=True)
        except (plyvel.Error, OSError) as error:
            raise storage_error(error, "cannot read the store") from error
        return value

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        try:
            if not self.large:
                return list(map(partial(self._db.get, verify_checksums=True), keys))
            wanted = list(keys)
            found = self._sought(sorted(wanted))
        except (plyvel.Error, OSError) as error:
            self._end_read()  # its error stays with it
            raise storage_error(error, "cannot read the store") from error
        return [found[key] for key in wanted]

    def _sought(self, wanted: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """The values of these keys, which are in order: by an iterator, until that turns out to pass much removed."""
        reader, found = self._read(), dict[bytes, bytes | None]()
        cpu_s, at = thread_time(), perf_counter()
        for done, key in enumerate(wanted, 1):
            found[key] = _at(reader, key)
            then = perf_counter()
            # What costs CPU, and no other thread had the time.
            if then - at > SLOW_S and thread_time() - cpu_s > SLOW_S + done * USUAL_S:
                self.large = False  # up to the next look at its size
                found |= {key: self._db.get(key, verify_checksums=True) for key in wanted[done:]}
                break
            at = then
        return found

    def _read(self) -> Any:
        if self._reader is None:
            self._reader = self._db.raw_iterator(verify_checksums=True)
        return self._reader

    def _end_read(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        writes, key = self._writes, None
        while True:
            scanned = 0
            self._scans += 1
            try:
                with self._db.iterator(
                    start=start, stop=stop, include_start=key is None, verify_checksums=True
                ) as iterator:
                    for key, value in iterator:
                        yield key, value
                        scanned += len(key) + len(value)
                        if scanned >= self._scanned_bytes_max and self._scans == 1 and self._writes == writes:
                            break
                    else:
                        return
            except (plyvel.Error, OSError) as error:
                raise storage_error(error, "cannot read the store") from error
            finally:
                self._scans -= 1
            start = key
            self.let_go()

    def let_go(self) -> None:
        """Give back the memory of what was read; no scan may be under way.

        Raises:
            StorageError: the database cannot be opened again, and stays closed.
        """
        self._end_read()
        self._db.close()
        _give_back()
        # If its files are gone, an empty one in their place would say that nothing was ever seen.
        self._db = self._opened(new=False)

    def write(self, batch: Batch, *, sync: bool) -> None:
        self._writes += 1
        self._end_read()
        try:
            with self._db.write_batch(transaction=True, sync=sync) as writer:
                put, delete = writer.put, writer.delete
                for key, value in batch.items():
                    if value is None:
                        delete(key)
                    else:
                        put(key, value)
        except (plyvel.Error, OSError) as error:
            raise storage_error(error, "cannot write to the store") from error
        if self._writes % _WRITES_BETWEEN_LOOKS == 0:
            self.large = self._is_large()

    def close(self) -> None:
        self._end_read()
        self._db.close()


def _check_files(path: Path) -> None:
    """Refuse a database that LevelDB would open without what is gone.

    Raises:
        StorageError: so it is.
        OSError: the directory cannot be read.
    """
    current = path / "CURRENT"
    # LevelDB would take the directory for a new one, and remove the tables.
    if not current.exists():
        lacks = "it has tables, and its file CURRENT is gone" if any(path.glob("*.ldb")) else ""
    else:
        # What was written last is in the log alone, and LevelDB does not miss it. It makes the log before it leaves the
        # first manifest of a new database for the second, and from then on there is always one.
        lacks = "" if any(path.glob("*.log")) or current.read_bytes() == _FIRST_MANIFEST else "its log, *.log, is gone"
    if lacks:
        raise StorageError(
            f"cannot open the store {path}: it is damaged ({lacks}); restore it, or start with another directory"
        )


def _at(reader: Any, key: bytes) -> bytes | None:
    reader.seek(key)
    if not reader.valid() or reader.key() != key:
        return None
    value: bytes = reader.value()
    return value


def _give_back() -> None:
    """Have glibc, where it is the C library, give free memory back: above all a closed database's cache."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def storage_error(error: Exception, what: str) -> StorageError:
    """Turn an error of LevelDB or the system into ours, with the remedy."""
    # plyvel passes LevelDB's message on as bytes.
    text = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else str(error)
    if _is_of(error, text, errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"{what}: no space left on the disk; free some and run the same command again")
    if isinstance(error, NotADirectoryError | FileExistsError) or "Not a directory" in text:
        return StorageError(f"{what}: a file is in the way; name another directory with --out or --data-dir")
    # Not "lock" anywhere in the text: paths may contain it, and so does "block".
    if text.startswith("IO error: lock "):
        return StorageError(f"{what}: another dhtcrawl process is using it; stop that one first")
    if isinstance(error, PermissionError) or "Permission denied" in text:
        return StorageError(f"{what}: permission denied; check its owner and mode")
    if _is_of(error, text, errno.EROFS):
        return StorageError(f"{what}: its file system can only be read; name a directory in another")
    if _is_of(error, text, errno.EMFILE):
        return StorageError(f"{what}: this process may open no more files; raise 'ulimit -n'")
    # "Invalid argument" is how LevelDB tells of a table that was cut off: it reads behind the end of the mapped file.
    if isinstance(error, plyvel.CorruptionError) or text.startswith("Corruption: ") or _CUT_OFF.search(text):
        return StorageError(f"{what}: it is damaged ({text}); restore it, or start with another directory")
    return StorageError(f"{what}: {text}")


def _is_of(error: Exception, text: str, *numbers: int) -> bool:
    """Whether an error is one of these of the system; LevelDB's have no number, and end with its words."""
    words = tuple(map(os.strerror, numbers))
    return (isinstance(error, OSError) and error.errno in numbers) or text.endswith(words)
