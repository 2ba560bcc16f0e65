"""Where readings come from: one file per source, found by listing this folder.

A source reads one kind of place (a sysfs class, an ioctl, a log folder) and yields readings: a
sample, an event or a named absence for each thing that should be there. Interval, timeout,
self-metrics, spooling and the host's labels are the scheduler's business, never the source's.

To add one: write `collector/sources/<where_the_bytes_come_from>.py` with a class and
``SOURCE = ThatClass``, and a case folder under `tests/fixtures/sources/<name>/`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import ClassVar, Protocol

import msgspec

from collector.contract.errors import ContractError
from collector.contract.model import Reading
from collector.doors.host import Host


class SourceSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=None
):
    """What can be set for every source; a source with more to set extends it."""

    enabled: bool = True
    interval_seconds: float = 5.0
    """Five seconds resolve a step of a training job and cost a thousandth of a core."""
    timeout_seconds: float = 3.0
    """A read that takes longer is reported as failed; the next one waits for it to end."""


class Source(Protocol):
    """One source, made once per agent; it may keep what it discovered between reads.

    A source whose numbers must go on over a restart of the agent also has ``save_state`` and
    ``load_state`` (`collector.agent.schedule.Remembers`); `ib_sysfs` shows how.
    """

    name: ClassVar[str]
    """The module's name, also the name of its section in the agent's settings."""
    Settings: ClassVar[type[SourceSettings]]

    def __init__(self, settings: SourceSettings) -> None:
        """Remember the settings; touch nothing."""

    def read(self, host: Host) -> Iterator[Reading]:
        """Everything that can be read now. ``host`` is the only door to the machine."""
        ...


def discover() -> dict[str, type[Source]]:
    found: dict[str, type[Source]] = {}
    for module_info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        source = getattr(module, "SOURCE", None)
        if source is None or source.name != module_info.name:
            msg = f"{module.__name__} must export SOURCE, a class with name = {module_info.name!r}"
            raise ContractError(msg)
        found[source.name] = source
    return found
