"""How long the service waits for a client that sends or reads slowly.

A body must be whole within `BODY_SECONDS`, and each part of an answer must be taken within
`ANSWER_SECONDS`; else the connection ends, so that a client which does neither holds nothing.
Headers, idle connections and their number are `api.http.connections`.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.base.errors import Problem
from api.base.limits import ANSWER_SECONDS, BODY_SECONDS
from api.http.boundary import respond_in_shape_of
from api.http.turns import LEAVING


class SlowReader(Exception):  # noqa: N818 - reads as the statement it is
    """The client took no part of its answer for `ANSWER_SECONDS`."""


class Patience:
    """Bounds the time of a request's body and of each part of its answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + BODY_SECONDS
        is_whole = is_answering = False

        async def hear() -> Message:
            nonlocal is_whole
            if is_whole:  # now it waits for the client to leave, which may take hours
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise too_slow() from None
            is_whole = not message.get("more_body", False)
            return message

        async def say(message: Message) -> None:
            nonlocal is_answering
            is_answering = True
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await send(message)
            except TimeoutError:
                raise SlowReader from None

        LEAVING.set(hear)
        try:
            await self._app(scope, hear, say)
        except Problem as problem:
            # One that no route turned into an answer, since it was raised while it read the body.
            if is_answering:
                raise
            await respond_in_shape_of(scope["path"], problem)(scope, receive, say)


def too_slow() -> Problem:
    return Problem(
        408,
        "too slow",
        f"the body was not whole after BODY_SECONDS = {BODY_SECONDS:g} s",
        rule="BODY_SECONDS",
        # What is still to come of the body must not be taken for the next request.
        headers={"Connection": "close"},
    )
