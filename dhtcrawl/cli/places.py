"""Where the directories of a crawl lie: what it brings, and what goes on with it.

    DIR              the outputs, which one may hand on: nothing in it is secret
    DIR.node         the node's key, its lock and its store; of a gathered crawl, the collection's store
    DIR.node/nodes   a data directory for each node of `crawl --nodes`; gone once the crawl is complete

Earlier versions kept these as DIR/node and DIR/nodes. A directory that has them goes on with them where they are.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from dhtcrawl.cli.runtime import STORE_DIR, locked
from dhtcrawl.errors import StorageError, UsageError
from dhtcrawl.storage.outputs.outputs import PAGES_DIR, PAGES_FILE
from dhtcrawl.storage.store.files import sync_path

SUFFIX: Final = ".node"
NODES_DIR: Final = "nodes"
_OVER: Final = ".nodes.over"
CRAWLS_DIR: Final = "crawls"  # below the data directory of a node of a swarm: a directory for each crawl
_INSIDE: Final = "node"  # the data directory of earlier versions, below the outputs


def node_dir(out: Path) -> Path:
    """The data directory of the node that crawls, or gathers, into `out`.

    Raises:
        UsageError: nothing can lie beside `out`.
    """
    inside, beside = out / _INSIDE, _beside(out)
    return inside if _has_store(inside) and not _has_store(beside) else beside


def nodes_dir(out: Path) -> Path:
    """Where the data directories of the nodes lie that crawl into `out` as a private swarm.

    Raises:
        UsageError: nothing can lie beside `out`.
    """
    inside, beside = out / NODES_DIR, _beside(out) / NODES_DIR
    return inside if inside.is_dir() and not beside.is_dir() else beside


def remove_nodes(out: Path) -> None:
    """Remove the data directories of the nodes of a crawl that is complete.

    First they get another name, all at once: a part of them, as a kill would leave it, is no crawl to go on with.
    """
    remove_left(out)
    base = nodes_dir(out)
    base.rename(base.with_name(_OVER))
    sync_path(base.parent)
    remove_left(out)


def remove_unbegun(out: Path) -> None:
    """Remove the data directories of nodes none of which has a store: their command ended before there was a crawl.

    Raises:
        StoreInUse: a command is at work there.
        StorageError: they cannot be used.
    """
    base = _beside(out) / NODES_DIR  # never within the outputs, where `nodes` may be anybody's
    if not base.is_dir() or _has_begun(base):
        return
    with locked(base):
        for path in filter(Path.is_dir, list(base.iterdir())):
            with locked(path):  # else a node whose command was killed has not ended yet
                pass
        if not _has_begun(base):
            shutil.rmtree(base, ignore_errors=True)


def remove_left(out: Path) -> None:
    """Remove what a kill has left of those; another command may be doing the same."""
    for place in (out, _beside(out)):
        shutil.rmtree(place / _OVER, ignore_errors=True)


def out_of(data_dir: Path) -> Path | None:
    """The outputs that belong to a data directory, by its name; None where it says nothing of them."""
    if data_dir.name == _INSIDE:
        return data_dir.parent
    return data_dir.with_name(data_dir.name.removesuffix(SUFFIX)) if _is_beside(data_dir) else None


def outputs_of(out: str | None, data_dir: Path, crawl: bytes) -> Path | None:
    """The outputs of a crawl whose records lie in `data_dir`: those in `out`, if it is given, else the node's own.

    A node of a swarm has a directory for each crawl below its own. None: nothing says where they are.
    """
    if out is not None:
        return Path(out)
    in_swarm = data_dir / CRAWLS_DIR
    return in_swarm / crawl.hex() if in_swarm.is_dir() else out_of(data_dir)


def find_data_dir(out: str | None, data_dir: str | None) -> Path:
    """The data directory that a command on a store means; without a name, the newest in the working directory.

    Raises:
        UsageError: there is none.
    """
    if data_dir is not None:
        found = Path(data_dir)
    elif out is not None:
        found = node_dir(Path(out))
    else:
        stores = data_dirs_in(Path())
        if not stores:
            raise UsageError("no crawl here; name one with --out DIR or --data-dir DIR")
        found = stores[0]
    if not _has_store(found):
        raise UsageError(
            f"{found} holds no store; name a crawl's directory with --out DIR, or a node's with --data-dir DIR"
        )
    return found


def data_dirs_in(directory: Path) -> list[Path]:
    """The data directories of crawls whose outputs lie in `directory`, the newest first; others' private ones not."""
    beside = [path for path in directory.glob(f"*{SUFFIX}") if _is_beside(path)]
    found = [path for path in [*beside, *directory.glob(f"*/{_INSIDE}")] if _shows_store(path)]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def check_whole(out: Path, data_dir: Path) -> None:
    """Refuse to begin anew in outputs whose data directory is elsewhere, or gone, and beside the key of another crawl.

    Raises:
        UsageError: so it is; the message says what is lacking.
        StorageError: `out` is no directory.
    """
    if out.exists() and not out.is_dir():
        raise StorageError(f"cannot create {out}: a file is in the way; name another directory with --out")
    if data_dir != out and _has_store(out):
        raise UsageError(
            f"{out} holds the store of a node, and its key, which are no outputs; name the directory that belongs to "
            "it, or another, with --out"
        )
    if data_dir != out and _has_pages(data_dir) and not _has_store(data_dir):
        raise UsageError(
            f"{data_dir} holds the outputs of a crawl, and nothing secret may lie in those, as the key of the node "
            "that crawls would; name another directory with --out or --data-dir"
        )
    if _has_pages(out) and not _has_store(data_dir):
        raise UsageError(
            f"{out} holds a crawl's outputs, but what goes on with them is not at {data_dir}; "
            "move it there, or name another directory with --out"
        )


def check_gathered(out: Path) -> None:
    """Refuse a directory without pages where those still lie with the nodes of `crawl --nodes`.

    Raises:
        UsageError: so it is; the message says how to have them.
    """
    # In this order: whoever has the outputs need not be let into what lies beside them.
    if not (out / PAGES_DIR / PAGES_FILE).is_file() and nodes_dir(out).is_dir():
        raise UsageError(
            f"the pages of {out} lie with the nodes of its crawl: repeat the crawl's command to go on with it, "
            "and this one after its end or Ctrl-C"
        )


def check_no_pages(out: Path, data_dir: Path) -> None:
    """Refuse to begin in outputs of which the store of `data_dir` knows nothing: it lost what it had, or forgot it.

    Raises:
        UsageError: so it is.
    """
    if _has_pages(out):
        raise UsageError(
            f"{out} holds a crawl's outputs, of which the store in {data_dir} knows nothing; "
            "restore the store, or name another directory with --out"
        )


def gone(out: Path, data_dir: Path) -> UsageError:
    """What to raise where `data_dir` knows of pages, and `out` has no archive."""
    if (data_dir / CRAWLS_DIR).is_dir():
        return UsageError(f"{data_dir} belongs to a node of a swarm; name another directory with --data-dir, or none")
    return UsageError(
        f"{data_dir} belongs to a crawl whose outputs are no longer in {out}; "
        f"move them back there, or remove {data_dir} to crawl anew"
    )


def _beside(out: Path) -> Path:
    # `.` and `..` have no name of their own, and what a link points to is one place under any name.
    try:
        place = out.resolve() if out.name in ("", "..") or out.is_symlink() else out
    except RuntimeError as error:  # up to Python 3.12
        raise UsageError(f"--out {out}: is a link that leads to itself; name another directory") from error
    if not place.name:
        raise UsageError(f"--out {out}: the node's store lies beside it, where no room is; name a directory below it")
    return place.with_name(place.name + SUFFIX)


def _is_beside(path: Path) -> bool:
    return path.name.endswith(SUFFIX) and path.name != SUFFIX


def _has_begun(base: Path) -> bool:
    return any(map(_has_store, base.iterdir()))


def _has_store(data_dir: Path) -> bool:
    return (data_dir / STORE_DIR).is_dir()


def _shows_store(data_dir: Path) -> bool:
    try:
        return _has_store(data_dir)
    except OSError:
        return False


def _has_pages(out: Path) -> bool:
    try:
        return (out / PAGES_DIR / PAGES_FILE).stat().st_size > 0
    except OSError:
        return False
