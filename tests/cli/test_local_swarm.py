"""What the nodes of `crawl --nodes` are told."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

import pytest

from dhtcrawl.cli.local_swarm import patiently, settings_of
from dhtcrawl.config import Config, CrawlSettings, NodeSettings, StorageSettings

# Where a node listens, who may ask it and whom it joins: that is the command's business.
PLACE = {
    "listen", "advertise", "outbound_only", "bootstrap", "admin", "admin_token_file", "admin_cert", "admin_key",
    "secret_file", "open_swarm",
}  # fmt: skip


def test_a_node_has_all_settings_that_the_command_was_given_but_where_it_is() -> None:
    said = NodeSettings(
        data_dir="d", log_level="debug", log_format="text", drain_timeout_s=7.0, listen="127.0.0.1:1",
        advertise="127.0.0.1:2", outbound_only=True, bootstrap=("127.0.0.1:3",), admin="127.0.0.1:4",
        admin_token_file="token", admin_cert="cert", admin_key="key", labels=("type=meta",),
        allowed_policies=("mine:Policy",), private_networks=("loopback",), secret_file="secret", open_swarm=True,
    )  # fmt: skip
    wanted = {name: value for name, value in asdict(said).items() if name not in PLACE}
    wanted |= {name: value for name, value in asdict(NodeSettings()).items() if name in PLACE}
    config = Config(node=said, crawl=CrawlSettings(depth=2), storage=StorageSettings(sync=False, disk_limit="90%"))
    first, second = (settings_of(config, Path("out.node/nodes/1"), first=first) for first in (True, False))
    assert asdict(first.node) == wanted | {"data_dir": "out.node/nodes/1", "log_format": "json"}
    assert (first.crawl, first.storage) == (CrawlSettings(), config.storage), "what a crawl is goes with the crawl"
    assert (second.node, second.storage) == (first.node, StorageSettings(sync=False)), "the first one looks for all"


@pytest.mark.parametrize(("takes_s", "told"), [(0.0, 0), (3600.0, 1)])
async def test_a_node_that_takes_long_to_take_part_is_waited_for_and_the_user_told(takes_s: float, told: int) -> None:
    said: list[str] = []
    line = asyncio.sleep(takes_s, "where it is")
    assert await patiently(line, lambda: said.append("it takes long")) == "where it is"
    await asyncio.sleep(3600.0)
    assert len(said) == told
