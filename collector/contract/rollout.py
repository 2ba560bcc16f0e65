"""Configurations that the service hands to agents: what both sides must agree on.

A document is TOML, as bytes; its SHA-256 names its content. A signature binds a document to its
version by a key that the operator and the agents hold and the service does not.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from pathlib import Path
from typing import Final

from collector.contract.errors import SettingsError

DOCUMENT_BYTES_MAX: Final = 64 << 10
"""Of a configuration: all settings of all sources with their notes have 30 kB. → 413"""
KEY_BYTES_MIN: Final = 32
"""Of a key for signatures: as many as SHA-256 gives."""
KEY_BYTES_MAX: Final = 4 << 10
"""A longer file is another file."""
KIND: Final = "configuration"
"""The kind of the events by which agents report which configuration they run."""
DETAIL_CHARS_MAX: Final = 300
"""Of why an agent does not run a configuration."""
VERSION_MAX: Final = (1 << 31) - 1
LOCAL_VERSION: Final = 0
"""The version of an agent that runs its own file alone."""


class Outcome(enum.StrEnum):
    """What an agent says of a version."""

    RUNNING = "running"
    """It runs this version, as it has since before it started."""
    TRYING = "trying"
    GOOD = "good"
    FAILED = "failed"
    """It refused the version, or went back from it, and does not try it again."""
    INTERRUPTED = "interrupted"
    """The trial was broken off without proof against the version; it may be tried again."""


def digest_of(document: bytes) -> str:
    """SHA-256, hexadecimal."""
    return hashlib.sha256(document).hexdigest()


def sign(key: bytes, version: int, sha256: str) -> str:
    """HMAC-SHA256, hexadecimal, over the version and the document's digest.

    >>> sign(b"k" * 32, 7, "ab") == sign(b"k" * 32, 8, "ab")
    False
    """
    told = f"fabricscope configuration\n{version}\n{sha256}\n".encode()
    return hmac.new(key, told, hashlib.sha256).hexdigest()


def is_signed(key: bytes, version: int, sha256: str, signature: str) -> bool:
    # As bytes: compare_digest takes no text beyond ASCII, and the signature comes from outside.
    return hmac.compare_digest(sign(key, version, sha256).encode(), signature.encode())


def read_key(file: Path) -> bytes:
    """The key in a file, without white space around it; SettingsError says what is wrong."""
    try:
        with file.open("rb") as opened:
            key = opened.read(KEY_BYTES_MAX + 1).strip()
    except OSError as error:
        raise SettingsError(f"key file {file}: {error.strerror}") from error
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise SettingsError(
            f"key file {file} has {len(key)} bytes; a key has {KEY_BYTES_MIN} to {KEY_BYTES_MAX}. "
            "To make one: openssl rand -hex 32 > FILE"
        )
    return key
