"""Causes and reasons that a verdict excludes, and why: only where there was data. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from alerts.finding import Finding
from alerts.window.model import Things, Window
from collector.contract.cause_facts import Absence
from collector.contract.verdict import Cause, Layer, Reason, RuledOut

NAMES = {"ports": "port", "gpus": "GPU", "hosts": "host"}


def ruled_out(
    window: Window, root: Finding, symptoms: Sequence[Finding], findings: Sequence[Finding]
) -> Iterator[RuledOut]:
    listed: set[str] = {str(root.cause), str(root.reason)}
    for one in (root, *symptoms):
        for each in one.ruled_out:
            if each.what not in listed:
                listed.add(each.what)
                yield each
    checks: list[tuple[Cause | Reason, Absence | None]] = []
    if root.cause.facts.layer is not Layer.COMPUTE:
        checks += [(cause, cause.facts.absence) for cause in Cause]
    if root.cause.facts.layer is not Layer.NETWORK:
        checks += [(reason, reason.facts.absence) for reason in Reason]
    found = {str(word) for one in findings for word in (one.cause, one.reason)}
    for what, absence in checks:
        if absence is None or str(what) in listed | found:
            continue
        if count := read(getattr(window, absence.of), absence.readings):
            why = f"{absence.why} ({counted(count, NAMES[absence.of])})"
            yield RuledOut(what=str(what), why=why)


def counted(count: int, thing: str) -> str:
    """The count in words.

    >>> counted(1, "GPU"), counted(12, "port")
    ('1 GPU was read', '12 ports were read')
    """
    return f"1 {thing} was read" if count == 1 else f"{count} {thing}s were read"


def read(things: Things, readings: Sequence[str]) -> int:
    rows: set[int] = set()
    for name in readings:
        found = things.readings.get(name)
        if found is not None:
            rows.update(found.row[~np.isnan(found.values).all(axis=1)].tolist())
    return len(rows)
