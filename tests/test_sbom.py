"""What dhtcrawl is made of is written from the lock file: each package, each hash, and the same bytes each time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import sbom

import dhtcrawl

ROOT = Path(__file__).parent.parent


def test_each_package_of_the_lock_file_is_there_with_all_its_hashes(tmp_path: Path) -> None:
    out = tmp_path / "made.json"
    assert sbom.main(["--out", str(out)]) == 0
    first = out.read_bytes()
    assert sbom.main(["--out", str(out)]) == 0
    assert out.read_bytes() == first
    document = json.loads(first)
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    pins = re.findall(r"^([a-z0-9-]+)==([^\s;]+)", lock, re.MULTILINE)
    assert [(each["name"], each["version"]) for each in document["components"]] == pins
    hashes = [each["content"] for component in document["components"] for each in component["hashes"]]
    assert hashes == re.findall(r"sha256:([0-9a-f]{64})", lock)
    assert all(component["hashes"] for component in document["components"])
    assert len({component["bom-ref"] for component in document["components"]}) == len(pins)
    assert document["metadata"]["component"]["version"] == dhtcrawl.__version__
    assert document["bomFormat"] == "CycloneDX"


def test_a_marker_of_a_package_is_told() -> None:
    (one,) = sbom.components('a-b==1.0 ; python_version < "3.14" \\\n    --hash=sha256:' + "a" * 64 + "\n")
    assert one["properties"] == [{"name": "dhtcrawl:marker", "value": 'python_version < "3.14"'}]
    assert one["purl"] == "pkg:pypi/a-b@1.0"


@pytest.mark.parametrize("line", ["a>=1.0", "-r other.txt", "https://files.example/a.whl", "    --hash=md5:00"])
def test_a_line_that_is_no_pin_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="line 1 of the lock file"):
        sbom.components(line)


@pytest.mark.parametrize("name", ["lock", "out"])
def test_a_file_that_cannot_be_used_is_told(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing" / "file"
    with pytest.raises(SystemExit) as ended:
        sbom.main([f"--{name}", str(missing)])
    assert ended.value.code == 2
    assert f"{missing}: No such file or directory; name another file" in capsys.readouterr().err
