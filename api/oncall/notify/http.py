"""HTTP posts to receivers: bounded in time and size, and without secrets in errors and logs."""

from __future__ import annotations

import asyncio
import email.utils
import enum
import logging
from collections.abc import Iterable, Mapping

import httpx
import msgspec

ANSWER_BYTES_MAX = 16 << 10
"""Bytes of an answer that are read: receivers answer with a word or two."""
ANSWER_CHARS_SHOWN = 200
CONNECT_SECONDS_MAX = 5.0
RETRY_AFTER_SECONDS_MAX = 3_600.0
"""What a receiver may ask for. More is a mistake of its clock, and a page that comes too late."""
CONNECTIONS_MAX = 64
SECRET_CHARS_MIN = 4
"""Shorter ones are not struck out of texts: they would take words apart."""

_NEVER = {400, 405, 411, 413, 414, 415, 422}
"""Statuses that depend on the content, whatever the sender and the time."""


class Delivery(enum.StrEnum):
    """What the answer to an attempt means for the notice."""

    SENT = "sent"
    RETRY = "retry"
    """Unreachable, too busy, or an operator has to change something (token, address)."""
    REFUSED = "refused"
    """The content is refused; a retry would not help."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended."""

    delivery: Delivery
    detail: str = ""
    """For operators; without secrets."""
    retry_after_s: float | None = None


def quieten() -> None:
    """Keep HTTP libraries from logging addresses: some receivers' address is the secret."""
    for name in ("httpx", "httpcore", "apprise"):
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, logging.WARNING))


def make_client() -> httpx.AsyncClient:
    """For all receivers. Redirects are not followed: a secret must not travel on."""
    quieten()
    limits = httpx.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=10)
    return httpx.AsyncClient(limits=limits, follow_redirects=False)


async def post(
    client: httpx.AsyncClient,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    now_s: float,
    secrets: Iterable[str] = (),
) -> Outcome:
    """Post JSON and judge the answer; never raises for what the other side does."""
    timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_SECONDS_MAX))
    content = {"Content-Type": "application/json", **headers}
    try:
        # httpx bounds each read by itself; a server that drips bytes would take for ever.
        async with (
            asyncio.timeout(timeout_s),
            client.stream("POST", url, content=body, headers=content, timeout=timeout) as answer,
        ):
            beginning = await read_start(answer)
    except TimeoutError:
        return Outcome(delivery=Delivery.RETRY, detail=f"no answer within {timeout_s:g} s")
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError) as error:
        # Not the error's own text alone: it may contain the address.
        detail = strike(f"{type(error).__name__}: {error}", [url, *secrets])
        return Outcome(delivery=Delivery.RETRY, detail=detail)
    delivery = judge(answer.status_code)
    detail = "" if delivery is Delivery.SENT else f"{answer.status_code}: {beginning}"
    return Outcome(
        delivery=delivery,
        detail=strike(detail, [url, *secrets]),
        retry_after_s=parse_retry_after(answer.headers.get("retry-after"), now_s),
    )


def judge(status: int) -> Delivery:
    """What an HTTP status means.

    >>> [judge(status).value for status in (200, 202, 429, 503, 401, 422)]
    ['sent', 'sent', 'retry', 'retry', 'retry', 'refused']
    """
    if httpx.codes.is_success(status):
        return Delivery.SENT
    return Delivery.REFUSED if status in _NEVER else Delivery.RETRY


async def read_start(answer: httpx.Response) -> str:
    """The first bytes of an answer's text, on one line."""
    read = b""
    async for chunk in answer.aiter_raw():
        read += chunk[: ANSWER_BYTES_MAX - len(read)]
        if len(read) >= ANSWER_BYTES_MAX:
            break
    text = read.decode("utf-8", "replace")
    plain = "".join(sign if sign.isprintable() else " " for sign in text)
    return plain.strip()[:ANSWER_CHARS_SHOWN]


def strike(text: str, secrets: Iterable[str]) -> str:
    """The text without secrets, cut to a line.

    >>> strike("cannot reach https://hooks/T/B/x", ["https://hooks/T/B/x"])
    'cannot reach ***'
    """
    for secret in secrets:
        if len(secret) >= SECRET_CHARS_MIN:
            text = text.replace(secret, "***")
    return text[: 2 * ANSWER_CHARS_SHOWN]


def parse_retry_after(text: str | None, now_s: float) -> float | None:
    """Seconds that a Retry-After header asks for (a number or an HTTP date), bounded.

    >>> parse_retry_after("7", 0.0), parse_retry_after("soon", 0.0), parse_retry_after(None, 0.0)
    (7.0, None, None)
    """
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:9])
    else:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - now_s
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(seconds, 0.0), RETRY_AFTER_SECONDS_MAX)
