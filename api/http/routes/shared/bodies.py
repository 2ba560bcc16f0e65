"""Reading a request's body under the service's bounds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fastapi import Request
from starlette.requests import ClientDisconnect

from api.base.errors import Problem
from api.base.limits import BODY_BYTES_MAX
from api.data.ingest.budgets import Over, Sender
from api.data.ingest.ingest import Ingest
from api.http.context import Context
from api.http.tokens.guard import caller_of


async def read_body(request: Request, ingest: Ingest, held: contextlib.ExitStack) -> bytes:
    """The whole body. Its bytes count as held until ``held`` is closed.

    The declared length is only checked: a client that declares much and sends nothing must not
    take room from others. Bytes are counted as they arrive, for the sender and for all.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit():
        check_size(int(declared))
    holding = held.enter_context(ingest.holding(sender_of(request)))
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            check_size(size)
            holding.add(len(chunk))
            chunks.append(chunk)
    except ClientDisconnect as error:
        # No client reads this answer; it is for our own count, which must not show a bug of ours.
        raise Problem(400, "cut off", f"the sender left after {size} bytes") from error
    return b"".join(chunks)


def sender_of(request: Request) -> str:
    """Whose bytes these are: the token's name, or the address where no token is required."""
    address = request.client.host if request.client is not None else ""
    return caller_of(request).name or address


def ingest_sender(request: Request) -> Sender:
    """Who sends telemetry, for its budgets and its hosts.

    A token for named hosts is one sender. One for a prefix or for any host is shared by many
    machines, so each of their addresses has budgets of its own.
    """
    caller = caller_of(request)
    name = sender_of(request)
    if caller.name and caller.hosts.count is None and request.client is not None:
        name = f"{name} at {request.client.host}"
    line = f"{request.client.host}:{request.client.port}" if request.client is not None else ""
    return Sender(name, caller.hosts, line, caller.name)


async def read_telemetry(
    request: Request, parts: Context, held: contextlib.ExitStack, protocol: str
) -> tuple[bytes, Sender]:
    """The body of an ingest request and its sender; raises Over, before it is read, past a budget.

    Its bytes are counted when they are there, whatever becomes of them.
    """
    sender = ingest_sender(request)
    with over_counted(parts, protocol, sender):
        account = parts.ingest.budgets.enter(sender)
    body = await read_body(request, parts.ingest, held)
    account.take_bytes(len(body))
    return body, sender


@contextlib.contextmanager
def over_counted(parts: Context, protocol: str, sender: Sender) -> Iterator[None]:
    """Count a request that is refused whole, by the budget."""
    try:
        yield
    except Over as error:
        refused = {error.body.rule: 1}
        parts.metrics.refuse(protocol, refused)
        parts.ingest.note_refused(protocol, refused, error.body.detail, sender.name)
        raise


def check_size(size: int) -> None:
    if size > BODY_BYTES_MAX:
        why = f"the body has {size} bytes or more; BODY_BYTES_MAX is {BODY_BYTES_MAX}"
        raise Problem(413, "too large", why, rule="BODY_BYTES_MAX")


async def receive(request: Request, parts: Context) -> bytes:
    """The whole body, for a route that needs it only until it is decoded."""
    with contextlib.ExitStack() as held:
        return await read_body(request, parts.ingest, held)
