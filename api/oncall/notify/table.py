"""One receiver as the notifier's file has it, and how its secrets are read."""

from __future__ import annotations

from pathlib import Path

import msgspec

from collector.contract.errors import SettingsError

SECRET_BYTES_MAX = 4_096


class ReceiverTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be set for every receiver; one with more to set extends it (`Receiver.Table`)."""

    name: str
    type: str
    url: str = ""
    url_file: str = ""
    key: str = ""
    key_file: str = ""
    timeout_s: float = 10.0


def secret_of(table: ReceiverTable, key: str, where: str) -> str:
    """A receiver's `url`, `key` or another secret, from the file if the table names one."""
    file: str = getattr(table, f"{key}_file")
    given: str = getattr(table, key)
    return read_secret(f"{where}.{key}_file", file) if file else given


def read_secret(where: str, file: str) -> str:
    """The single line of a file with a secret. Raises SettingsError, without its content."""
    try:
        with Path(file).open("rb") as opened:
            raw = opened.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(f"{where} is {file}: {error.strerror}") from error
    try:
        text = raw.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise SettingsError(f"{where} is {file}, which is not text") from error
    if not text or len(raw) > SECRET_BYTES_MAX or not text.isprintable():
        raise SettingsError(
            f"{where} is {file}; it must hold one line, {SECRET_BYTES_MAX} bytes at most"
        )
    return text
