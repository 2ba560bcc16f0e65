"""`/v1/tokens`: bearer tokens made, listed and revoked with the scope admin; `/v1/whoami`."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Request, Response

from api.base.errors import Problem, decode_json
from api.base.host_names import PATTERN_CHARS_MAX, PATTERNS_MAX
from api.base.limits import TOKEN_DAYS_MAX, TOKEN_NAME_CHARS_MAX, TOKEN_RATE_MAX, TOKENS_MAX
from api.data.inventory.token_model import Scope
from api.http.context import Parts
from api.http.routes.shared.answers import CONFLICT, answer, copied, documented
from api.http.routes.shared.bodies import receive
from api.http.tokens.guard import caller_of
from api.http.tokens.wish import Wish, issue
from collector.contract.errors import SettingsError

log = logging.getLogger(__name__)

router = APIRouter(tags=["tokens"])


Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=PATTERN_CHARS_MAX)]
HostPatterns = Annotated[list[Pattern], msgspec.Meta(min_length=1, max_length=PATTERNS_MAX)]


class TokenAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request: whose token it is, what it may do, and for how long."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=TOKEN_NAME_CHARS_MAX)]
    scopes: Annotated[list[Scope], msgspec.Meta(min_length=1, max_length=len(Scope))]
    days: Annotated[float, msgspec.Meta(gt=0, le=TOKEN_DAYS_MAX)] | None = None
    """Left out: until it is revoked."""
    requests_per_second: Annotated[float, msgspec.Meta(gt=0, le=TOKEN_RATE_MAX)] | None = None
    """Left out: as many as come."""
    hosts: HostPatterns | None = None
    """Hosts of which it may send telemetry: names, prefixes with `*` at their end, or `*` for any.
    Left out: the host of its name if it may only ingest, else any."""


class TokenOut(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is kept. Its secret is not."""

    id: str
    name: str
    scopes: Sequence[Scope]
    created_at: dt.datetime
    expires_at: dt.datetime | None
    used_at: dt.datetime | None
    """To about five minutes; null: never."""
    revoked_at: dt.datetime | None
    requests_per_second: float | None
    hosts: Sequence[str]
    """Of which it may send telemetry; `*`: of any."""


class NewTokenOut(msgspec.Struct, frozen=True, kw_only=True):
    """A token that was just made, with its text, which is never shown again."""

    token: str
    kept: TokenOut


class TokensOut(msgspec.Struct, frozen=True, kw_only=True):
    """All tokens of the inventory, those that are not revoked first."""

    items: Sequence[TokenOut]


@router.post(
    "/v1/tokens",
    summary="Make a token",
    **documented(
        NewTokenOut,
        "The token, with its text: keep it, it is shown once.",
        body=TokenAsked,
        others=CONFLICT,
    ),
)
async def make_token(request: Request, parts: Parts) -> Response:
    """Every service process knows it within two seconds."""
    asked = decode_json(await receive(request, parts), TokenAsked, "not a token")
    try:
        token, text = issue(copied(Wish, asked), parts.now())
    except SettingsError as error:
        raise Problem(422, "not a token", str(error)) from error
    if not await asyncio.to_thread(parts.inventory.tokens.keep, token):
        why = f"there are TOKENS_MAX = {TOKENS_MAX} tokens; revoke those that are not used"
        raise Problem(409, "too many tokens", why, rule="TOKENS_MAX")
    log.info("token %s (%s) was made by %r", token.id, token.name, caller_of(request).name)
    await asyncio.to_thread(parts.tokens.look)
    return answer(NewTokenOut(token=text, kept=copied(TokenOut, token)))


@router.get(
    "/v1/tokens",
    summary="Tokens, without their secrets",
    **documented(TokensOut, "The tokens of the inventory; the token file's are not shown."),
)
async def tokens(parts: Parts) -> Response:
    """Who may do what, until when, and about when each was last used."""
    kept = await asyncio.to_thread(parts.inventory.tokens.all)
    return answer(TokensOut(items=[copied(TokenOut, token) for token in kept]))


@router.delete(
    "/v1/tokens/{token}",
    summary="Revoke a token",
    **documented(TokenOut, "The token, which is valid no more."),
)
async def revoke_token(token: str, request: Request, parts: Parts) -> Response:
    """By its id. Every service process knows it within two seconds, this one at once."""
    revoked = await asyncio.to_thread(parts.inventory.tokens.revoke, token, parts.now())
    if revoked is None:
        raise Problem(404, "no such token", f"no token has the id {token[:80]!r}, or not any more")
    log.info("token %s (%s) was revoked by %r", token, revoked.name, caller_of(request).name)
    await asyncio.to_thread(parts.tokens.look)
    return answer(copied(TokenOut, revoked))


class CallerOut(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and what that caller may do."""

    name: str
    """The token's; empty where no token is required."""
    allowed: Sequence[Scope]
    """All scopes together; those that a scope includes are listed, too."""
    incident: str
    """A notice's link: the one incident that it opens and acknowledges; empty: no link."""


@router.get(
    "/v1/whoami",
    summary="What this token may do",
    **documented(CallerOut, "The caller."),
)
async def whoami(request: Request) -> Response:
    """So that a page or a program can say beforehand what would be refused."""
    caller = caller_of(request)
    return answer(
        CallerOut(name=caller.name, allowed=sorted(caller.allowed), incident=caller.incident)
    )
