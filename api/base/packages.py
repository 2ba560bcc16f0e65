"""Packages that are installed with ours and that no process of ours needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

NEEDLESS = "pandas"
"""The embedded engine's package requires it. Arrow, which asks of every array whether it is one of
pandas', and the store's driver import it where they find it: 50 MB and a third of a second."""


class LeftOut(MetaPathFinder):
    """Says of one package that it is not installed."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: object = None, /
    ) -> ModuleSpec | None:
        if fullname == NEEDLESS:
            raise ModuleNotFoundError(f"{NEEDLESS} is left out of this process", name=NEEDLESS)
        return None


def leave_out_needless() -> None:
    """For a process that is ours alone, before it makes an array."""
    if not any(isinstance(finder, LeftOut) for finder in sys.meta_path):
        sys.meta_path.insert(0, LeftOut())
