"""The error that carries its own HTTP answer, for code that knows why a request is refused."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from collector.contract.errors import FabricscopeError

Body = TypeVar("Body", bound=msgspec.Struct)


class ProblemBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """RFC 9457. ``rule`` names the limit or rule of this service that refused the request."""

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


def decode_json(body: bytes, kind: type[Body], title: str) -> Body:
    """Raises Problem: 400 for a body that is not JSON, 422 with ``title`` for another shape."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Problem(422, title, str(error)) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Problem(400, "not JSON", f"the body cannot be read: {error}") from error
