"""The kinds of kernel messages that matter: `kernel_messages.toml`, read and compiled once."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources

import msgspec

from collector.contract.errors import ContractError
from collector.contract.kernel import Component, Severity

ANY_DRIVER = "*"
PCI_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_UNIT = r"[^ :/]{1,64}"
"""A network or RDMA device, where the driver writes it after the address."""
_CALLER = r"(?:\w{1,64}:\d{1,6}:\(pid \d{1,10}\): )?"
"""What mlx5 writes before errors and warnings: function, line and process."""


class Kind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the table; the file says what each field means."""

    kind: str
    component: Component
    severity: Severity
    has: tuple[str, ...]
    patterns: tuple[str, ...]
    meaning: str
    action: str
    source: str
    examples: tuple[str, ...]
    driver: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    messages: tuple[Kind, ...]


class Compiled(msgspec.Struct, frozen=True):
    """An entry with its patterns ready, over the bytes of a line."""

    kind: Kind
    has: tuple[bytes, ...]
    patterns: tuple[re.Pattern[bytes], ...]


def compile_kind(kind: Kind) -> Compiled:
    prefix = ""
    if kind.driver:
        driver = r"[\w.-]{1,32}" if kind.driver == ANY_DRIVER else re.escape(kind.driver)
        prefix = rf"{driver} (?P<pci>{PCI_ADDRESS})(?: (?P<unit>{_UNIT}))?: {_CALLER}"
    try:
        patterns = tuple(re.compile((prefix + each).encode("ascii")) for each in kind.patterns)
    except (re.error, UnicodeEncodeError) as error:
        msg = f"kernel_messages.toml, {kind.kind}: {error}"
        raise ContractError(msg) from error
    return Compiled(kind, tuple(each.encode("ascii") for each in kind.has), patterns)


@cache
def load_kinds() -> tuple[Compiled, ...]:
    """All entries in the order of the file."""
    text = (resources.files("collector.tables") / "kernel_messages.toml").read_text("utf-8")
    try:
        file = msgspec.convert(tomllib.loads(text), _File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        msg = f"kernel_messages.toml: {error}"
        raise ContractError(msg) from error
    return tuple(compile_kind(kind) for kind in file.messages)
