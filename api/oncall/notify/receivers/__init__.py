"""Notification receivers, one file each: it posts one notice and returns the outcome.

A file in this folder is all that a new one needs: a subclass of `Receiver`, or of
`api.oncall.notify.posting.PostingReceiver` for those that are posted JSON, whose ``name`` is the
file's, and ``RECEIVER = ThatClass``. The name is its `type` in the notifier's file.
"""

from __future__ import annotations

import abc
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from typing import ClassVar, Literal

import httpx
import msgspec

from alerts.rulebook.notices import Notice
from api.base.passes import Passes
from api.oncall.notify.http import Outcome
from api.oncall.notify.message import page_url
from api.oncall.notify.table import ReceiverTable
from collector.contract.errors import ContractError


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What every receiver is given. ``clock``: unix seconds."""

    client: httpx.AsyncClient
    external_url: str
    clock: Callable[[], float]
    passes: Passes | None = None

    def page_of(self, notice: Notice) -> str:
        """The link that opens the notice's incident in the page."""
        return page_url(notice, self.external_url, self.passes)


class Receiver(abc.ABC):
    """One receiver of notices."""

    name: ClassVar[str]
    Table: ClassVar[type[ReceiverTable]] = ReceiverTable
    needs: ClassVar[Literal["url", "key"]] = "url"
    """The secret without which it cannot work."""

    def __init__(self, table: ReceiverTable, means: Means) -> None:
        self._table = table
        self._means = means

    @classmethod
    def takes(cls, address: str) -> bool:
        return bool(address)

    @abc.abstractmethod
    async def send(self, notice: Notice) -> Outcome:
        """Send once. Returns within the receiver's time-out and raises nothing."""


@cache
def discover() -> Mapping[str, type[Receiver]]:
    found: dict[str, type[Receiver]] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        receiver = getattr(module, "RECEIVER", None)
        if receiver is None or receiver.name != info.name:
            raise ContractError(
                f"{module.__name__} must export RECEIVER, a class with name = {info.name!r}"
            )
        found[receiver.name] = receiver
    return found


def make_receiver(table: ReceiverTable, means: Means) -> Receiver:
    return discover()[table.type](table, means)
