"""The table of export formats: another one is a file in this room and a row here."""

from __future__ import annotations

from dhtcrawl.export.form import ExportFormat
from dhtcrawl.export.links_jsonl import LINKS
from dhtcrawl.export.pages_csv import CSV
from dhtcrawl.export.wacz import WACZ

FORMATS: dict[str, ExportFormat] = {each.name: each for each in (WACZ, CSV, LINKS)}
