"""One file for each question that a person asks; each has a `BOARD`."""

from __future__ import annotations

import importlib
import pkgutil

from dashboards.grafana.model import Board


def discover() -> dict[str, Board]:
    names = sorted(found.name for found in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}").BOARD for name in names}
