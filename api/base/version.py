"""The release of this program."""

from __future__ import annotations

from importlib.metadata import version

VERSION = version("fabricscope")
