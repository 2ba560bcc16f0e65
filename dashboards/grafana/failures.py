"""Errors of a Grafana, each with a name and what to do about it.

    GrafanaError
    ├── Unreachable      no answer, or too late, or 5xx after all attempts
    ├── NotGrafana       something answers, and it is no Grafana: a login page, HTML, a 404
    ├── TokenRefused     401: the token is wrong, expired or of another organisation
    ├── NotAllowed       403: the token is known and may not do this
    ├── Conflict         409, 412: another user was faster, or the name is taken
    └── Refused          400, 422 and the like: what was sent is refused for what it is

Texts come from outside: they lose control characters and secrets, and are cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collector.contract.errors import FabricscopeError

SAID_CHARS_MAX = 300
"""Of Grafana's message: a sentence or two; a proxy's page of HTML is of no use."""
SECRET_CHARS_MIN = 4
"""Shorter ones are not struck out of texts: they would take words apart."""

UNAUTHORISED, FORBIDDEN, NOT_FOUND, CONFLICT, PRECONDITION = 401, 403, 404, 409, 412
TOO_MANY, SERVER_ERRORS = 429, 500

DASHBOARD_STATUSES = {
    "version-mismatch": "another user saved it meanwhile; run push again to see the changes",
    "name-exists": "another dashboard has its uid or, in its folder, its title; rename that one",
    "plugin-dashboard": "it belongs to a plug-in of Grafana's, which may not be changed",
}
"""What the `status` of a 412 means for a person."""


class GrafanaError(FabricscopeError):
    """A failure of a Grafana that a person has to correct."""


class Unreachable(GrafanaError):  # noqa: N818 - reads as the statement it is
    """No answer, or too late, or only errors of the server."""


class NotGrafana(GrafanaError):  # noqa: N818 - reads as the statement it is
    """Something answers that is no Grafana."""


class TokenRefused(GrafanaError):  # noqa: N818 - reads as the statement it is
    """The token is wrong, has expired, or belongs to another organisation."""


class NotAllowed(GrafanaError):  # noqa: N818 - reads as the statement it is
    """The token may not do this."""


class Conflict(GrafanaError):  # noqa: N818 - reads as the statement it is
    """Another user was faster, or a name is taken."""


class Refused(GrafanaError):  # noqa: N818 - reads as the statement it is
    """What was sent is refused for what it is; ``status`` is HTTP's."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def plain(text: str, secrets: Iterable[str] = ()) -> str:
    r"""Text of others on one line: no control characters, no secrets, cut.

    >>> plain("no\x1b[31m\n such glsa_token", ["glsa_token"])
    'no [31m such ***'
    """
    for secret in secrets:
        if len(secret) >= SECRET_CHARS_MIN:
            text = text.replace(secret, "***")
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return line if len(line) <= SAID_CHARS_MAX else f"{line[: SAID_CHARS_MAX - 1]}…"


def said_of(answer: object) -> str:
    if isinstance(answer, Mapping):
        return str(answer.get("message", "")) or "no reason given"
    return str(answer or "") or "no reason given"


def explain(what: str, status: int, answer: object, secrets: Iterable[str] = ()) -> GrafanaError:
    """The error that a status means; ``what`` was being done, as `read folder x`.

    >>> explain("read folder x", 401, {"message": "Invalid API key"})
    TokenRefused('read folder x: 401, the token is refused (Invalid API key): make a new one \
in Grafana, Administration, Service accounts')
    """
    message = plain(said_of(answer), secrets)
    reason = answer.get("status", "") if isinstance(answer, Mapping) else ""
    if status >= SERVER_ERRORS or status == TOO_MANY:
        return Unreachable(f"{what}: {status}, Grafana fails or is too busy ({message})")
    if status == UNAUTHORISED:
        return TokenRefused(
            f"{what}: 401, the token is refused ({message}): "
            "make a new one in Grafana, Administration, Service accounts"
        )
    if status == FORBIDDEN:
        return NotAllowed(
            f"{what}: 403, the token may not do that ({message}): dashboards, folders and "
            "annotations need the role Editor, the data source needs Admin"
        )
    if status in {CONFLICT, PRECONDITION}:
        hint = DASHBOARD_STATUSES.get(str(reason), "")
        return Conflict(f"{what}: {status} ({message})" + (f": {hint}" if hint else ""))
    if status == NOT_FOUND:
        return Refused(f"{what}: 404, there is no such thing ({message})", status)
    return Refused(f"{what}: {status}, refused ({message})", status)
