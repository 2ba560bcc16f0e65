"""Whether a result can be written where a person wants it: asked before the work, not after."""

from __future__ import annotations

import os
from pathlib import Path

from collector.contract.errors import SettingsError


def check_file(path: Path | None) -> None:
    """Raises SettingsError if no file can be written there. None: none is wanted."""
    if path is None:
        return
    folder = path.absolute().parent
    if path.is_dir():
        raise SettingsError(f"{path} is a folder; name a file")
    if not folder.is_dir():
        raise SettingsError(f"{path}: there is no folder {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise SettingsError(f"{path}: no permission to write there")


def check_folder(path: Path) -> None:
    """Raises SettingsError if files cannot be written into it, or it cannot be made."""
    there = path.absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir():
        raise SettingsError(f"{path}: {there} is a file; name a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise SettingsError(f"{path}: no permission to write there")
