"""A switch's recorded messages, from the file `gnmi/<name>.json` of a captured tree."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from collector.contract.reason import UnreadReason
from collector.switches.gnmi.decode import DecodeError, decode_recording
from collector.switches.gnmi.model import GnmiError, Message, Request


class Recording:
    """A `collector.switches.gnmi.model.Connection` that yields what was recorded and ends."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        """The recording; a reader that has it already need not read it again."""

    def subscribe(self, request: Request) -> Iterator[Message]:  # noqa: ARG002 - all that there is
        """See `Connection`. The recording yields all that it has, whatever was requested."""
        try:
            yield from decode_recording(self.text)
        except (DecodeError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            detail = f"not a recording of gNMI: {error}"
            raise GnmiError(UnreadReason.UNPARSEABLE, detail) from error

    def cancel(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is held."""
