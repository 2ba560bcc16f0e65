"""The error that carries its own HTTP answer, for code that knows why a request is refused.

`api.boundary` turns it, and every other error, into a response.
"""

from __future__ import annotations

import msgspec

from collector.contract.errors import FabricscopeError


class ProblemBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """RFC 9457. ``rule`` names the limit or rule of ours that said no."""

    status: int
    title: str
    detail: str = ""
    rule: str = ""


class Problem(FabricscopeError):  # noqa: N818 - the name of the standard
    """An answer other than success, raised where the reason is known."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        rule: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.body = ProblemBody(status=status, title=title, detail=detail, rule=rule)
        self.headers = headers or {}
