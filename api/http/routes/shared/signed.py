"""Requests that another service signs in place of a token: their secret and their body."""

from __future__ import annotations

import msgspec
from fastapi import Request

from api.base.errors import Problem
from api.http.context import Context
from api.http.routes.shared.bodies import receive
from api.http.tokens.model import DenialReason
from api.oncall.notify.deeds import Result
from api.oncall.notify.table import ReceiverTable, secret_of
from collector.contract.errors import SettingsError


class DeedOut(msgspec.Struct, frozen=True, kw_only=True):
    """What became of what another system told of."""

    result: Result


def secret_for(parts: Context, receiver: str, kind: type[ReceiverTable], key: str) -> str:
    """The receiver's secret. It reads a file: call it from a thread.

    Raises Problem where no such receiver has one.
    """
    table = parts.notifying.tables.get(receiver)
    if isinstance(table, kind):
        try:
            secret = secret_of(table, key, f"receiver {receiver}")
        except SettingsError as error:
            raise Problem(503, "no secret", str(error)) from error
        if secret:
            return secret
    sort = kind.__name__.removesuffix("Table").lower()
    detail = f"no receiver {receiver[:80]!r} of type {sort} has a {key}_file"
    raise Problem(404, "not found", detail)


async def receive_short(request: Request, parts: Context, rule: str, at_most: int) -> bytes:
    """The body of a sender that is not known yet; ``rule`` names the bound. Raises Problem."""
    declared = request.headers.get("content-length", "")
    if not declared.isdecimal() or int(declared) > at_most:
        why = f"the request declares {declared or 'no'} bytes; {rule} is {at_most}"
        raise Problem(413, "too large", why, rule=rule)
    return await receive(request, parts)


def wrong_signature(parts: Context, header: str, receiver: str) -> Problem:
    """The refusal, counted."""
    parts.metrics.denied.labels(DenialReason.SIGNATURE).inc()
    why = f"{header} is not made with the secret of receiver {receiver!r}"
    return Problem(401, "wrong signature", why, rule=DenialReason.SIGNATURE)
