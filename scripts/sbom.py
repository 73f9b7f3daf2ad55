"""Writes what dhtcrawl is made of, as CycloneDX 1.5 (JSON), from a lock file and nothing else.

    python scripts/sbom.py [--lock requirements.lock] [--out dhtcrawl.cdx.json]

`make sbom` calls it. The lock file has each package's version, and the hash of every
file that may be installed for it: what `make setup` accepts is what stands here. The
same lock file makes the same bytes: there is no time and no random number in it.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import dhtcrawl

ROOT = Path(__file__).resolve().parent.parent
_PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+?))?(?: \\)?$")
_HASH = re.compile(r"^    --hash=sha256:(?P<hash>[0-9a-f]{64})(?: \\)?$")


def components(lock: str) -> list[dict[str, Any]]:
    """The packages of a lock file, in its order.

    Raises:
        ValueError: a line is neither a package nor a hash of one.
    """
    found: list[dict[str, Any]] = []
    for number, line in enumerate(lock.splitlines(), start=1):
        if pin := _PIN.match(line):
            found.append(_component(pin["name"], pin["version"], pin["marker"]))
        elif (hashed := _HASH.match(line)) and found:
            found[-1]["hashes"].append({"alg": "SHA-256", "content": hashed["hash"]})
        elif line.strip() and not line.lstrip().startswith("#"):
            raise ValueError(f"line {number} of the lock file is no package and no hash: {line[:80]!r}")
    return found


def sbom(lock: str) -> dict[str, Any]:
    """The document.

    Raises:
        ValueError: see `components`.
    """
    project = _component("dhtcrawl", dhtcrawl.__version__, None) | {"type": "application"}
    del project["hashes"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": project},
        "components": components(lock),
    }


def _component(name: str, version: str, marker: str | None) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    made: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if marker:
        made["properties"] = [{"name": "dhtcrawl:marker", "value": marker.strip()}]
    return made | {"hashes": []}


def main(argv: list[str] | None = None) -> int:
    """Write the document; 0 when it is written."""
    parser = argparse.ArgumentParser(description="Write what dhtcrawl is made of, as CycloneDX.")
    parser.add_argument("--lock", type=Path, default=ROOT / "requirements.lock")
    parser.add_argument("--out", type=Path, default=ROOT / "dhtcrawl.cdx.json")
    args = parser.parse_args(argv)
    try:
        document = sbom(args.lock.read_text("utf-8"))
        args.out.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}; name another file")
    except ValueError as error:
        parser.error(f"{args.lock}: {error}")
    print(f"{args.out}: {len(document['components'])} packages")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
