"""Detectors, one file each: `detect(window)` finds one phenomenon. Pure, deterministic, bounded.

A file in this folder is all that a new one needs. Its docstring has five paragraphs that begin with
*Phenomenon*, *Signal*, *Assumptions*, *Misses* and *Reference*. A detector never raises on odd data
(gaps, NaN, one rank, one step): it finds nothing then.

What a detector looks for and which data it needs stands in the entry of the cause or reason that
has its name. A detector with another name has a `LOOKS_FOR` of its own.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache

from alerts.finding import Finding
from alerts.window.model import Window
from collector.contract.cause_facts import Sought
from collector.contract.verdict import Cause, Reason

Detect = Callable[[Window], list[Finding]]


@cache
def discover() -> Mapping[str, Detect]:
    found: dict[str, Detect] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        found[module.name] = importlib.import_module(f"{__name__}.{module.name}").detect
    return found


def looks_for(name: str) -> Sought:
    """What a detector looks for, and the data of which it needs any.

    Of a detector without an entry and without `LOOKS_FOR` only the name is known, and it is taken
    to see.
    """
    named = [one.facts.looks_for for one in (*Cause, *Reason) if one == name]
    if name in discover():
        module = importlib.import_module(f"{__name__}.{name}")
        named.append(getattr(module, "LOOKS_FOR", None))
    return next(filter(None, named), None) or Sought(name.replace("_", " "), ())


def detect_all(window: Window) -> list[Finding]:
    """All findings, in an order that depends on nothing but the findings."""
    findings = [finding for detect in discover().values() for finding in detect(window)]
    return sorted(findings, key=lambda one: (one.since_ns, one.detector, repr(one.culprit)))
