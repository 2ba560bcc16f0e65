"""What an agent's event says about the configuration that it runs. Pure; events are hostile."""

from __future__ import annotations

import datetime as dt

import msgspec

from api.data.inventory.rollout_model import AgentConfiguration
from collector.contract.identity import printable
from collector.contract.model import Event
from collector.contract.rollout import DETAIL_CHARS_MAX, VERSION_MAX, Outcome
from collector.contract.units import NS


def updated(
    known: AgentConfiguration | None, agent: str, event: Event, now: dt.datetime
) -> AgentConfiguration | None:
    """What is known of an agent after its report; None if that cannot be read.

    A report that is older than what is known changes nothing: after an outage the newest batches
    come first.
    """
    said = event.attributes
    version, good = number(said.get("version", "")), number(said.get("good", ""))
    outcome = next((each for each in Outcome if each.value == said.get("result")), None)
    if version is None or good is None or outcome is None:
        return None
    at = dt.datetime.fromtimestamp(max(0, event.time_ns) / NS, tz=dt.UTC)
    if known is None:
        known = AgentConfiguration(agent=agent, at=at, heard_at=now)
    elif at < known.at:
        return known
    failed = version if outcome is Outcome.FAILED else known.failed
    return msgspec.structs.replace(
        known,
        good=good,
        trying=version if outcome is Outcome.TRYING else None,
        failed=None if failed == good else failed,
        detail=(
            printable(said.get("detail", "")[:DETAIL_CHARS_MAX])
            if outcome in {Outcome.FAILED, Outcome.INTERRUPTED}
            else known.detail
            if failed is not None and failed != good
            else ""
        ),
        at=at,
        heard_at=now,
    )


def number(text: str) -> int | None:
    """A version's number; None if it is none.

    >>> number("12"), number("-1"), number("9" * 30), number("")
    (12, None, None, None)
    """
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(VERSION_MAX)):
        return None
    found = int(text)
    return found if found <= VERSION_MAX else None
