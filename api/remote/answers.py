"""The service's answers to executors: health, standing actions, labels; and executors' reports.

Nothing of the service is imported: an executor runs elsewhere, perhaps against a service of another
version. An answer that is not understood is a named error, and upon an error nothing is changed.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from api.remote.client import NOT_MODIFIED, AsyncClient, decode, quoted
from collector.contract.identity import printable

WORDS_CHARS_MAX = 500
"""Of an executor's text in an action's history."""


class HostHealth(msgspec.Struct, frozen=True):
    """A host as `/v1/health` lists it."""

    host: str
    state: str
    reasons: tuple[str, ...] = ()


class FleetHealth(msgspec.Struct, frozen=True):
    """`/v1/health`."""

    stale: tuple[str, ...]
    items: list[HostHealth]


class Applied(msgspec.Struct, frozen=True):
    """An executor's report about an action."""

    executor: str
    outcome: str
    words: str = ""


class Action(msgspec.Struct, frozen=True):
    """A standing action, with the fields that executors read."""

    id: str
    kind: str
    host: str
    state: str
    hold: str = ""
    """`draining` or `out`."""
    reason: str = ""
    by: str = ""
    applied: tuple[Applied, ...] = ()


class Actions(msgspec.Struct, frozen=True):
    """`/v1/actions?state=standing`."""

    actions: list[Action]
    evidence: Literal["fresh", "stale"]
    next: str | None = None
    """Set: this is not all that stands."""
    stale: tuple[str, ...] = ()


class ActionState(msgspec.Struct, frozen=True):
    """`/v1/actions/{id}`: its state."""

    state: str


class NodeLabels(msgspec.Struct, frozen=True):
    """A host's labels."""

    host: str
    labels: dict[str, str]


class Labels(msgspec.Struct, frozen=True):
    """`/v1/kubernetes/labels`."""

    items: list[NodeLabels]


class Report(msgspec.Struct, frozen=True):
    """The outcome of an action at an executor."""

    action: str
    outcome: Literal["done", "failed"]
    words: str


class Service:
    """Queries one service for an executor. ``host``: only actions of this one."""

    def __init__(self, client: AsyncClient, host: str = "") -> None:
        self.url = client.url
        self.close = client.close
        self._ask = client.ask
        self._host = host
        self._tag = ""

    async def health(self, wait_s: float = 0.0) -> FleetHealth | None:
        """None: unchanged since the last answer, for as long as the service waited."""
        headers = {"If-None-Match": self._tag} if self._tag else {}
        asked = {"wait": f"{wait_s:g}"} if self._tag and wait_s else {}
        status, body, tag = await self._ask(
            "GET", "/v1/health", params=asked, headers=headers, patience_s=wait_s
        )
        if status == NOT_MODIFIED:
            return None
        found = decode("/v1/health", body, FleetHealth)
        self._tag = tag
        return found

    async def actions(self) -> Actions:
        asked = {"state": "standing", **({"host": self._host} if self._host else {})}
        _, body, _ = await self._ask("GET", "/v1/actions", params=asked)
        return decode("/v1/actions", body, Actions)

    async def action(self, number: str) -> ActionState:
        """Odd with status 404 if the service does not know it."""
        path = f"/v1/actions/{quoted(number)}"
        _, body, _ = await self._ask("GET", path)
        return decode(path, body, ActionState)

    async def labels(self) -> dict[str, dict[str, str]]:
        path = "/v1/kubernetes/labels"
        _, body, _ = await self._ask("GET", path)
        return {each.host: each.labels for each in decode(path, body, Labels).items}

    async def report(self, executor: str, report: Report) -> None:
        path = f"/v1/actions/{quoted(report.action)}/applied"
        words = printable(report.words[:WORDS_CHARS_MAX])
        body = {"executor": executor, "outcome": report.outcome, "words": words}
        await self._ask("POST", path, json=body)

    async def forward(self, path: str, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json"}
        _, answer, _ = await self._ask("POST", path, headers=headers, content=body)
        return answer
