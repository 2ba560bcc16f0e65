"""Files of other programs: one module per format, from bytes to records of ours. Pure.

A format reads a stream and yields what it understands; the agent's sources follow such files as
they grow, `fabricscope diagnose` reads them as they lie. Everything here is hostile: any bytes give
records, or a `ParseError` that names the place and the fault. A part that is not understood (one
line of a log) is *yielded* as a ParseError and the rest is used; it is *raised* only when nothing
more can come of the stream. Memory is bounded whatever the stream holds, and nothing in it is
executed.

To add one: write `collector/formats/<name>.py` with a class and ``FORMAT = ThatClass()``, and
fixtures under `tests/fixtures/formats/<name>/`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import BinaryIO, ClassVar, Protocol

import msgspec

from collector.contract.collective import Collective, StepSpan
from collector.contract.errors import ContractError, ParseError
from collector.contract.model import Event, Sample

HEAD_BYTES = 64 << 10
"""How much of a file's beginning `Format.recognises` is shown."""

Record = Collective | StepSpan | Event | Sample


class Origin(msgspec.Struct, frozen=True):
    """Where a stream comes from: for what its content lacks."""

    name: str
    """The file's name without folders and without `.gz` or `.zst`."""
    time_ns: int = 0
    """When the file was last changed, for records without a time of their own."""


class Format(Protocol):
    """One format. It keeps no state: one instance reads many streams at once."""

    name: ClassVar[str]
    title: ClassVar[str]

    def recognises(self, head: bytes, origin: Origin) -> bool:
        """Whether a file that begins like this is of this format; by content, hardly by name.

        At most one format recognises any file. ``head`` may end in the middle of anything.
        """
        ...

    def parse(self, stream: BinaryIO, origin: Origin) -> Iterator[Record | ParseError]:
        """What the stream holds, in its order; read in pieces."""
        ...


@cache
def discover() -> dict[str, Format]:
    found: dict[str, Format] = {}
    for module_info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        reader = getattr(module, "FORMAT", None)
        if reader is None or reader.name != module_info.name:
            msg = f"{module.__name__} must export FORMAT with name = {module_info.name!r}"
            raise ContractError(msg)
        found[reader.name] = reader
    return found
