"""Positions in lists, as `next` of a page hands them out and `after` brings them back."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import msgspec

from api.base.errors import Problem


def encode_position(key: Sequence[str | int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def read_position(text: str, kind: Any) -> Any:  # noqa: ANN401 - any type of msgspec's
    """Raises Problem if ``encode_position`` did not write the text."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(raw, type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError) as error:
        raise bad_position(text) from error


def bad_position(text: str) -> Problem:
    return Problem(400, "not a position", f"after={text[:40]!r}: pass `next` of the page before")
