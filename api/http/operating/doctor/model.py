"""What a look finds. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec


class Grade(enum.StrEnum):
    """How it is, the worst last."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


class Look(msgspec.Struct, frozen=True):
    """One thing that was looked at: what was found, and what to do unless it is ok."""

    subject: str
    grade: Grade
    found: str
    todo: str = ""


def ok(subject: str, found: str) -> Look:
    return Look(subject, Grade.OK, found)


def warning(subject: str, found: str, todo: str) -> Look:
    return Look(subject, Grade.WARNING, found, todo)


def wrong(subject: str, found: str, todo: str) -> Look:
    return Look(subject, Grade.WRONG, found, todo)


def worst(looks: Iterable[Look]) -> Grade:
    """The worst grade of all; ok if there are none.

    >>> worst([ok("a", ""), wrong("b", "", ""), warning("c", "", "")])
    <Grade.WRONG: 'wrong'>
    """
    order = list(Grade)
    return max((look.grade for look in looks), key=order.index, default=Grade.OK)


def table(looks: Iterable[Look]) -> str:
    """For people: a line each, and under it what to do."""
    lines = []
    for look in looks:
        lines.append(f"{look.grade:<8} {look.subject:<14} {look.found}")
        if look.todo:
            lines.append(f"{'':<23} → {look.todo}")
    return "\n".join(lines)
