"""What recordings of others hold that no metric has: `tests/fixtures/sources/unmapped.toml`."""

import tomllib
from functools import cache
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "fixtures/sources/unmapped.toml"


@cache
def everything() -> dict[str, dict[str, dict[str, str]]]:
    """By recording, what the names are, and each name with its reason."""
    return tomllib.loads(FILE.read_text("utf-8"))


def unmapped(recordings: str, what: str) -> dict[str, str]:
    """Names and reasons.

    >>> unmapped("snmp", "tables")["1.3.6.1.2.1.14"]
    'OSPF'
    """
    return everything()[recordings][what]
