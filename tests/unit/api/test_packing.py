"""The service gzips large JSON once for clients that accept gzip, and nothing else."""

import asyncio
import gzip
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from api.base.packing import PACKED_BYTES_MIN, Packing

LARGE = b'{"a": "' + b"fabric" * PACKED_BYTES_MIN + b'"}'
SMALL = b'{"a": 1}'
JSON = "application/json"


def pieces() -> Iterator[bytes]:
    yield from (LARGE[at : at + 10_000] for at in range(0, len(LARGE), 10_000))


ANSWERS: dict[str, Callable[[], Response]] = {
    "large": lambda: Response(LARGE, media_type=JSON),
    "small": lambda: Response(SMALL, media_type=JSON),
    "stream": lambda: StreamingResponse(pieces(), media_type=f"{JSON}; charset=utf-8"),
    "packed": lambda: Response(
        gzip.compress(LARGE), media_type=JSON, headers={"Content-Encoding": "gzip"}
    ),
    "decided": lambda: Response(LARGE, media_type=JSON, headers={"Vary": "Accept-Encoding"}),
    "events": lambda: StreamingResponse(pieces(), media_type="text/event-stream"),
    "rows": lambda: StreamingResponse(pieces(), media_type="application/x-ndjson"),
    "nothing": lambda: Response(status_code=304, headers={"ETag": '"x"'}),
}


async def answer(request: Request) -> Response:
    return ANSWERS[request.path_params["what"]]()


APP = Packing(Starlette(routes=[Route(path, answer) for path in ("/v1/{what}", "/api/v1/{what}")]))


def get(path: str, accept: str = "gzip, deflate") -> tuple[httpx.Response, bytes]:
    """The answer and its bytes as they were sent."""

    async def ask() -> tuple[httpx.Response, bytes]:
        transport = httpx.ASGITransport(app=APP)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://x") as client,
            client.stream("GET", path, headers={"Accept-Encoding": accept}) as found,
        ):
            raw = b"".join([piece async for piece in found.aiter_raw()])
        return found, raw

    return asyncio.run(ask())


@pytest.mark.parametrize("what", ["large", "stream"])
def test_large_json_is_packed_for_who_takes_it(what: str) -> None:
    found, raw = get(f"/v1/{what}")
    assert found.headers["content-encoding"] == "gzip"
    assert found.headers["vary"] == "Accept-Encoding"
    assert len(raw) < len(LARGE) / 20
    assert gzip.decompress(raw) == LARGE
    assert found.headers.get("content-length", str(len(raw))) == str(len(raw))


@pytest.mark.parametrize("what", ["large", "stream"])
@pytest.mark.parametrize("accept", ["", "br", "gzip;q=0"])
def test_who_does_not_gets_it_plain_and_caches_are_told(what: str, accept: str) -> None:
    found, raw = get(f"/v1/{what}", accept)
    assert "content-encoding" not in found.headers
    assert found.headers["vary"] == "Accept-Encoding"
    assert raw == LARGE


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/v1/small", SMALL),
        ("/v1/events", LARGE),
        ("/v1/rows", LARGE),
        ("/v1/decided", LARGE),
        ("/v1/nothing", b""),
        ("/api/v1/large", LARGE),
        ("/api/v1/stream", LARGE),
    ],
)
def test_everything_else_goes_out_as_it_is(path: str, content: bytes) -> None:
    found, raw = get(path)
    assert "content-encoding" not in found.headers
    assert raw == content


def test_nothing_is_packed_twice() -> None:
    found, raw = get("/v1/packed")
    assert found.headers.get_list("content-encoding") == ["gzip"]
    assert gzip.decompress(raw) == LARGE


def test_a_connection_that_is_no_request_passes() -> None:
    seen: list[Any] = []

    async def inner(scope: Any, _receive: Any, _send: Any) -> None:  # noqa: ANN401
        seen.append(scope["type"])

    async def nothing() -> Any:  # noqa: ANN401
        return {}

    async def nowhere(_: Any) -> None:  # noqa: ANN401
        return

    asyncio.run(Packing(inner)({"type": "lifespan"}, nothing, nowhere))
    assert seen == ["lifespan"]
