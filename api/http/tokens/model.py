"""Tokens as they are stored, and the checks of a token in a request. Pure.

A token is `fsc_ID_SECRET`. The ID is no secret: it finds the row and appears in lists and logs. Of
the whole text only its SHA-256 is kept; the secret has 256 random bits, so an attacker cannot try
them out, and a slow hash would only make every request slow.
"""

from __future__ import annotations

import datetime as dt
import enum
import hashlib
import hmac
import re
import secrets

import msgspec

from api.base.host_names import ANY_HOST, Hosts
from api.base.limits import TOKEN_CHARS_MAX
from api.data.inventory.token_model import Scope, Token
from api.http.tokens.scopes import allowed_by

PREFIX = "fsc"
"""So that scanners of repositories and people know what they have found."""
_FORM = re.compile(rf"{PREFIX}_([0-9a-f]{{12}})_[A-Za-z0-9_-]{{43}}")


class DenialReason(enum.StrEnum):
    """Why a request was denied: `rule` of the answer, `reason` of the counter."""

    NO_TOKEN = "no_token"  # noqa: S105 - a reason
    UNKNOWN_TOKEN = "unknown_token"  # noqa: S105
    TOKEN_EXPIRED = "token_expired"  # noqa: S105
    TOKEN_REVOKED = "token_revoked"  # noqa: S105
    SCOPE = "scope"
    TOKEN_RATE = "token_rate"  # noqa: S105
    SIGNATURE = "signature"


class Caller(msgspec.Struct, frozen=True):
    """The caller: the token's name, empty where none is required, and what it may do.

    ``hosts`` are those of which it may send telemetry. ``incident``: it came with a pass, which is
    for this one incident and for nothing else; empty: it did not.
    """

    name: str
    allowed: frozenset[Scope]
    hosts: Hosts = ANY_HOST
    incident: str = ""


ANYBODY = Caller("", allowed_by([Scope.ADMIN]))
"""Who asks where no token is asked for."""


class Denial(msgspec.Struct, frozen=True):
    """Why a request is denied, in words for its sender."""

    status: int
    reason: DenialReason
    words: str


def make_secret() -> tuple[str, str]:
    """The id of a new token and its whole text, which is shown once and not stored."""
    number = secrets.token_hex(6)
    return number, f"{PREFIX}_{number}_{secrets.token_urlsafe(32)}"


def digest_of(text: str) -> str:
    """A header's bytes that are no text come as characters of Latin-1: nothing here can fail."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def id_in(text: str) -> str:
    """The id in a token of ours; empty for any other text.

    >>> id_in("fsc_0123456789ab_" + "x" * 43), id_in("fsc_0123456789ab_x")
    ('0123456789ab', '')
    """
    found = _FORM.fullmatch(text)
    return found[1] if found else ""


def is_same(token: Token, digest: str) -> bool:
    """Whether a text with this digest is the token; in constant time."""
    return hmac.compare_digest(token.digest, digest)


def given_in(header: str) -> str:
    """The token of an Authorization header; empty if it holds none.

    >>> given_in("bearer  abc "), given_in("Basic abc"), given_in("Bearer"), given_in("abc")
    ('abc', '', '', '')
    """
    scheme, _, given = header.partition(" ")
    token = given.strip()
    return token if scheme.lower() == "bearer" and len(token) <= TOKEN_CHARS_MAX else ""


def denied(token: Token, now: dt.datetime) -> Denial | None:
    """Why a genuine token is denied; None if it is valid."""
    if token.revoked_at is not None:
        words = f"token {token.name!r} ({token.id}) was revoked at {token.revoked_at:%FT%TZ}"
        return Denial(401, DenialReason.TOKEN_REVOKED, words)
    if not token.stands(now):
        words = f"token {token.name!r} ({token.id}) expired at {token.expires_at:%FT%TZ}"
        return Denial(401, DenialReason.TOKEN_EXPIRED, words)
    return None
