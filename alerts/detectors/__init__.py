"""Detectors, one file each: `detect(window)` finds one phenomenon. Pure, deterministic, bounded.

A file in this folder is all that a new one needs. Its docstring has five paragraphs that begin with
*Phenomenon*, *Signal*, *Assumptions*, *Misses* and *Reference*. A detector never raises on odd data
(gaps, NaN, one rank, one step): it finds nothing then.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache

from alerts.finding import Finding
from alerts.window import Window

Detect = Callable[[Window], list[Finding]]


@cache
def discover() -> Mapping[str, Detect]:
    """Every detector of this folder, by name in alphabetical order."""
    found: dict[str, Detect] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        found[module.name] = importlib.import_module(f"{__name__}.{module.name}").detect
    return found


def detect_all(window: Window) -> list[Finding]:
    """All findings, in an order that depends on nothing but the findings."""
    findings = [finding for detect in discover().values() for finding in detect(window)]
    return sorted(findings, key=lambda one: (one.since_ns, one.detector, repr(one.culprit)))
