"""Settings: where a value comes from, and what a wrong one is told."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.config import SECTIONS, Config, all_settings, load, pairs
from dhtcrawl.errors import ConfigError
from dhtcrawl.units import parse_duration, parse_size


def write(directory: Path, text: str) -> Path:
    path = directory / "dhtcrawl.toml"
    path.write_text(text, "utf-8")
    return path


def refusal(key: str, value: object) -> str:
    """What a flag with a bad value is told: one line that names the key and where it came from."""
    with pytest.raises(ConfigError) as caught:
        load(flags={key: value})
    message = str(caught.value)
    assert message.startswith(f"config: {key} (command line)")
    assert "\n" not in message
    return message


def attempt(parse: Callable[[object], float], value: object) -> tuple[float | None, str]:
    """What `value` is, or what its writer is told."""
    try:
        return parse(value), ""
    except ValueError as error:
        return None, str(error)


# -- precedence --


def test_without_anything_every_value_is_its_default() -> None:
    assert load() == Config()
    assert load().origins == {}


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(tmp_path: Path) -> None:
    file = write(tmp_path, "[crawl]\ndepth = 1\nmax_pages = 1\ndelay_s = '1m'\n")
    config = load(
        file=file,
        environ={"DHTCRAWL_CRAWL_DEPTH": "2", "DHTCRAWL_CRAWL_MAX_PAGES": "2", "HOME": "/"},
        flags={"crawl.depth": "3"},
    )
    assert (config.crawl.depth, config.crawl.max_pages, config.crawl.delay_s) == (3, 2, 60.0)
    assert config.crawl.scope == "host"
    assert config.origins == {
        "crawl.depth": "flag",
        "crawl.max_pages": "DHTCRAWL_CRAWL_MAX_PAGES",
        "crawl.delay_s": str(file),
    }


@pytest.mark.parametrize("key", all_settings())
def test_every_setting_can_be_set_from_the_environment(key: str) -> None:
    field = all_settings()[key]
    default = field.default
    text = {True: "on", False: "off"}[default] if isinstance(default, bool) else "" if default == () else str(default)
    variable = f"DHTCRAWL_{key.replace('.', '_').upper()}"
    config = load(environ={variable: text})
    section, _, name = key.partition(".")
    assert getattr(getattr(config, section), name) == (("",) if default == () else default)
    assert config.origins == {key: variable}


def test_the_variable_that_names_the_file_is_no_setting() -> None:
    assert load(environ={"DHTCRAWL_CONFIG": "x.toml"}) == Config()


# -- unknown --


def test_an_unknown_key_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"crawl\.dpeth \(command line\) is no setting; did you mean crawl\.depth\?"):
        load(flags={"crawl.dpeth": "1"})
    file = write(tmp_path, "[nowhere]\nxyz = 1\n")
    with pytest.raises(ConfigError, match=rf"nowhere\.xyz \({file}\) is no setting; see 'dhtcrawl config show'"):
        load(file=file)


@pytest.mark.parametrize("variable", ["DHTCRAWL_CRAWL_DPETH", "DHTCRAWL_", "DHTCRAWL_CRAWL_depth"])
def test_an_unknown_variable_is_refused(variable: str) -> None:
    with pytest.raises(ConfigError, match=f"{variable} is no setting; see 'dhtcrawl config show'"):
        load(environ={variable: "1"})


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("depth = 1", "depth stands outside a section"),
        ("[crawl\n", "not valid TOML"),
        ("[crawl]\ndepth = 1\ndepth = 2", "not valid TOML"),
        ("[crawl.depth]\nx = 1", "use a whole number"),
        ("[[crawl]]\ndepth = 1", "crawl stands outside a section"),
        (f"[crawl]\ndepth = {'9' * 5000}", "not valid TOML"),
        (f"[crawl]\ninclude = {'[' * 5000}", "not valid TOML"),
    ],
)
def test_a_file_that_is_no_settings_file_is_refused(text: str, what: str, tmp_path: Path) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError, match=what) as caught:
        load(file=file)
    assert str(file) in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_a_settings_file(tmp_path: Path) -> None:
    assert load(file=write(tmp_path, "\ufeff[crawl]\ndepth = 1\n")).crawl.depth == 1


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(ConfigError, match=f"cannot read {path}: .*; check the path"):
            load(file=path)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(file=binary)


# -- out of range --


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("crawl.scope", "hosts", "use one of page, prefix, host, domain, any"),
        ("crawl.scope", 5, "use a string"),
        ("crawl.depth", "-2", "use -1 or more"),
        ("crawl.depth", "deep", "use a whole number"),
        ("crawl.depth", True, "use a whole number"),
        ("crawl.depth", 1.5, "use a whole number"),
        ("crawl.depth", "9" * 30, "use a whole number up to"),
        ("crawl.depth", "9" * 9999, "use a whole number"),
        ("crawl.max_pages", None, "use a whole number"),
        ("crawl.delay_s", "-1s", "use a duration such as"),
        ("crawl.delay_s", "1 fortnight", "use a duration such as"),
        ("crawl.delay_s", "9" * 400, "use a shorter duration"),
        ("crawl.time_limit_s", "inf", "use a duration such as"),
        ("crawl.size_limit_bytes", "9" * 400, "use a smaller size"),
        ("crawl.size_limit_bytes", "1e400", "use a size such as"),
        ("fetch.body_bytes_max", 0, "use 1 or more"),
        ("fetch.tls_verify", "maybe", "use on or off"),
        ("fetch.concurrency", "0", "use 1 or more"),
        ("swarm.lease_s", "2h", "use 3600 or less"),
        ("crawl.include", "(", "is no regular expression"),
        ("crawl.include", "/größe/", "'/größe/' has 'ö', which stands in no URL as crawled; write %C3%B6"),
        ("crawl.exclude", ["ok", "日"], "'日' has '日', which stands in no URL as crawled; write %E6%97%A5"),
        ("crawl.include", "a{99999999999999999999}", "smaller counts"),
        ("crawl.exclude", ["ok", "("], "is no regular expression"),
        (
            "crawl.exclude",
            ["(?<=a)b"],
            "has a look-behind (?<=…), which is not among what is matched in linear time here",
        ),
        ("crawl.exclude", ["a"] * 257, "use 256 or fewer"),
        ("crawl.exclude", [1], "use a string or a list of strings"),
        ("crawl.user_agent", "a\nb", "control character; remove it"),
        ("crawl.user_agent", "a\udcff", "is not UTF-8"),
        ("crawl.user_agent", "b" * 257, "too long for a robots.txt token; shorten it"),
        ("crawl.include", ["\udcff"], "is not UTF-8"),
        ("storage.disk_limit", "101%", 'use a share such as "90%"'),
        ("storage.disk_limit", "nan%", 'use a share such as "90%"'),
        ("storage.disk_limit", "x%", 'use a share such as "90%"'),
        ("storage.disk_limit", "0", 'use a size such as "20GiB"'),
        ("storage.disk_limit", "much", "use a size such as"),
    ],
)
def test_a_value_out_of_range_is_told_what_would_be_right(key: str, value: object, remedy: str) -> None:
    assert remedy in refusal(key, value)


@pytest.mark.parametrize("key", [key for key, field in all_settings().items() if field.metadata["low"] is not None])
def test_every_lower_bound_is_kept(key: str) -> None:
    low = all_settings()[key].metadata["low"]
    config = load(flags={key: low})
    section, _, name = key.partition(".")
    assert getattr(getattr(config, section), name) == low
    refusal(key, low - 1)


@pytest.mark.parametrize("key", [key for key, field in all_settings().items() if field.metadata["choices"]])
def test_every_choice_is_taken_and_nothing_else(key: str) -> None:
    for choice in all_settings()[key].metadata["choices"]:
        load(flags={key: choice})
    refusal(key, "something else")


@pytest.mark.parametrize("value", ["", "20GiB", "90%", "0.5%", " 100% ", "1"])
def test_a_disk_limit_is_a_size_or_a_share(value: str) -> None:
    assert load(flags={"storage.disk_limit": value}).storage.disk_limit == value.strip()


def test_a_path_may_be_any_bytes() -> None:
    assert load(flags={"node.data_dir": "d\udcff"}).node.data_dir == "d\udcff"


def test_a_list_may_be_one_string() -> None:
    assert load(flags={"crawl.include": "a"}).crawl.include == ("a",)
    assert load(flags={"crawl.include": ["a", "b"]}).crawl.include == ("a", "b")


# -- units --


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2", 2), (2, 2), (0.5, 0.5), (0, 0), (".5s", 0.5), ("1.5s", 1.5), ("200ms", 0.2), ("10m", 600), ("1min", 60),
        ("2h", 7200), ("1 D", 86400),
    ],
)  # fmt: skip
def test_a_duration_is_a_number_with_a_unit(text: object, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        (4096, 4096),
        ("2MiB", 2 << 20),
        ("1.5GB", 1_500_000_000),
        ("10 kb", 10_000),
        ("1k", 1000),
        ("3B", 3),
    ],
)
def test_a_size_is_a_number_with_a_unit(text: object, size: int) -> None:
    assert parse_size(text) == size


@given(st.one_of(st.text(max_size=12), st.text("0123456789.eE+-msdhKMGiB ", max_size=12), st.booleans(), st.floats()))
def test_no_text_whatever_is_half_a_number(value: object) -> None:
    for parse in (parse_duration, parse_size):
        parsed, told = attempt(parse, value)
        assert told.startswith("use a ") if parsed is None else 0 <= parsed < float("inf")


@given(
    st.sampled_from(list(all_settings())),
    st.one_of(st.text(max_size=20), st.integers(), st.none(), st.lists(st.text())),
)
def test_no_value_whatever_raises_anything_but_a_config_error(key: str, value: object) -> None:
    told = ""
    try:
        load(flags={key: value})
    except ConfigError as error:
        told = str(error)
    assert told == "" or key in told
    assert "\n" not in told


def test_every_setting_says_what_it_is_for() -> None:
    for key, field in all_settings().items():
        assert field.metadata["doc"], key
        assert dataclasses.is_dataclass(SECTIONS[key.partition(".")[0]])


# -- pairs --


def test_options_and_labels_are_names_with_values() -> None:
    config = load(flags={"crawl.policy_options": ["mode=pso", "note=a=b"], "node.labels": "type=meta"})
    assert pairs(config.crawl.policy_options) == {"mode": "pso", "note": "a=b"}
    assert config.node.labels == ("type=meta",)
    assert pairs([""]) == {}


@pytest.mark.parametrize("text", ["mode", "=pso", "a b=c", "1=2", "x=" + 201 * "y"])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"crawl\.policy_options \(command line|is no NAME=VALUE"):
        load(flags={"crawl.policy_options": [text]})


def test_a_name_stands_in_pairs_once() -> None:
    with pytest.raises(ConfigError, match="mode stands there twice; say it once"):
        load(flags={"crawl.policy_options": ["mode=pso", "mode=exact"]})


def test_networks_are_words_networks_and_addresses_also_several_in_a_variable() -> None:
    config = load(environ={"DHTCRAWL_NODE_PRIVATE_NETWORKS": "loopback, 10.0.0.0/8,fd00::/8"})
    assert config.node.private_networks == ("loopback", "10.0.0.0/8", "fd00::/8")
    assert load(environ={"DHTCRAWL_NODE_PRIVATE_NETWORKS": ""}).node.private_networks == ("",)


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("intranet", "use a network such as"),
        ("10.0.0.0/33", "use a network such as"),
        ("fe80::1%eth0", "leave out what follows the %"),
        ("10.1.2.3/8", 'use "10.0.0.0/8" for the network'),
        ("::ffff:10.0.0.0/104", "write it as IPv4"),
    ],
)
def test_what_is_no_network_is_refused_with_the_remedy(word: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(remedy)):
        load(flags={"node.private_networks": [word]})
