"""The built-in page over HTTP: what lies in its folder is served, and nothing else."""

import gzip
import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest
from starlette.datastructures import Headers

from api.http import page_files
from api.http.settings import ServiceSettings
from tests.stands.service import in_process
from tests.tools.setup_page import PAGE, pack

INDEX = b"<!doctype html><script type=module src=./assets/index-1a2b3c4d.js></script>" * 20
SCRIPT = b"console.log('fabricscope');" * 100
TOKEN = "a-token-of-decent-length"  # noqa: S105 - of a service that lives for a second


def make_folder(folder: Path) -> Path:
    """A page as npm would have built it, packed."""
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_bytes(INDEX)
    (folder / "assets/index-1a2b3c4d.js").write_bytes(SCRIPT)
    (folder / "assets/tiny-5e6f.svg").write_bytes(b"<svg/>")
    assert pack(folder) == 2
    (folder.parent / "secret.txt").write_text("not a part of the page")
    (folder / "assets/link.txt").symlink_to(folder.parent / "secret.txt")
    return folder


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Of a service that asks for tokens: the page itself needs none."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "tokens").write_text(TOKEN)
    settings = ServiceSettings(data=str(folder), token_file=str(folder / "tokens"))
    built = patch.object(page_files, "FOLDER", make_folder(folder / "built/page"))
    with built, in_process(folder, settings=settings) as running:
        yield running.client


def plain(client: httpx.Client, path: str, **headers: str) -> httpx.Response:
    return client.get(path, headers={"Accept-Encoding": "identity", **headers})


def test_the_bare_address_is_the_page_and_is_always_asked_for_anew(client: httpx.Client) -> None:
    answer = plain(client, "/")
    assert (answer.status_code, answer.content) == (200, INDEX)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    tag = answer.headers["etag"]
    again = plain(client, "/", **{"If-None-Match": f'W/"other", {tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert plain(client, "/", **{"If-None-Match": '"other"'}).status_code == 200


def test_assets_are_kept_for_ever(client: httpx.Client) -> None:
    answer = plain(client, "/assets/index-1a2b3c4d.js")
    assert (answer.status_code, answer.content) == (200, SCRIPT)
    assert answer.headers["content-type"].startswith("text/javascript")
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert plain(client, "/assets/tiny-5e6f.svg").headers["content-type"] == "image/svg+xml"


@pytest.mark.parametrize(("path", "content"), [("/", INDEX), ("/assets/index-1a2b3c4d.js", SCRIPT)])
def test_who_takes_gzip_gets_it(client: httpx.Client, path: str, content: bytes) -> None:
    packed = client.get(path, headers={"Accept-Encoding": "br, gzip;q=0.9"})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(content) / 3
    assert packed.content == content  # unpacked by the client
    assert packed.headers["content-type"] == plain(client, path).headers["content-type"]
    refused = client.get(path, headers={"Accept-Encoding": "gzip;q=0"})
    assert "content-encoding" not in refused.headers
    for answer in (packed, refused):
        assert answer.headers["vary"] == "Accept-Encoding"
    # Packed and plain are two representations, and have two tags.
    assert packed.headers["etag"] != refused.headers["etag"]


def test_a_packed_file_that_is_older_than_the_file_is_not_served(client: httpx.Client) -> None:
    """As after `npm run build` by hand, which packs nothing."""
    folder = page_files.FOLDER / "assets"
    file, packed = folder / "index-1a2b3c4d.js", folder / "index-1a2b3c4d.js.gz"
    before = packed.stat()
    os.utime(packed, ns=(0, file.stat().st_mtime_ns - 1))
    try:
        answer = client.get("/assets/index-1a2b3c4d.js", headers={"Accept-Encoding": "gzip"})
        assert "content-encoding" not in answer.headers
        assert answer.content == SCRIPT
    finally:
        os.utime(packed, ns=(0, before.st_mtime_ns))


def test_a_rebuilt_file_is_served_at_once_and_memory_has_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answered by the caller's own thread: scripts wait for nothing that the service computes."""
    folder = make_folder(tmp_path / "page")
    files = page_files.PageFiles(folder)
    asked, name = Headers({}), "assets/index-1a2b3c4d.js"
    first = files.respond(name, asked)
    monkeypatch.setattr(page_files, "KEPT_BYTES_MAX", 3 * len(SCRIPT))
    for turn in range(5):
        (folder / name).write_bytes(SCRIPT + b"\n" * (turn + 1))
        again = files.respond(name, asked)
        assert again.body == SCRIPT + b"\n" * (turn + 1)
        assert again.headers["etag"] != first.headers["etag"]
        assert sum(map(len, files._kept.values())) <= page_files.KEPT_BYTES_MAX


def test_head_says_the_same_without_the_content(client: httpx.Client) -> None:
    for path in ("/", "/assets/index-1a2b3c4d.js"):
        whole = client.get(path)
        head = client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        for name in ("etag", "content-length", "content-type", "cache-control"):
            assert head.headers[name] == whole.headers[name]


def test_the_page_may_reach_this_service_and_nobody_else(client: httpx.Client) -> None:
    for path in ("/", "/assets/index-1a2b3c4d.js"):
        headers = client.get(path).headers
        policy = dict(
            part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == policy["connect-src"] == "'self'"
        assert "script-src" not in policy  # as default-src: no inline scripts, no eval
        for name in ("object-src", "base-uri", "frame-ancestors", "style-src-attr"):
            assert policy[name] == "'none'"
        assert not re.search(r"https?:|\*", headers["content-security-policy"])
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path",
    [
        "/assets/nothing.js",
        "/assets/",
        "/assets/index-1a2b3c4d.js.gz",
        "/assets/link.txt",
        "/assets/..%2Findex.html",
        "/assets/..%2f..%2fsecret.txt",
        "/assets/%2e%2e",
        "/assets/%00",
        "/assets/" + "a" * 300,
        "/assets/..%5csecret.txt",
    ],
)
def test_nothing_else_is_served(client: httpx.Client, path: str) -> None:
    # Raw, because a client would tidy the path up of its own accord.
    url = client.base_url.copy_with(raw_path=path.encode())
    answer = client.get(url, headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 404, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert "not a part" not in answer.text


def test_only_the_page_needs_no_token(client: httpx.Client) -> None:
    assert client.get("/v1/hosts").status_code == 401
    assert client.get("/docs").status_code == 401
    assert client.get("/index.html").status_code == 401
    own = {"Authorization": f"Bearer {TOKEN}"}
    paths = client.get("/openapi.json", headers=own).json()["paths"]
    assert not {"/", "/assets/{name}"} & paths.keys()


def test_other_methods_are_refused(client: httpx.Client) -> None:
    for path in ("/", "/assets/index-1a2b3c4d.js"):
        assert client.post(path).status_code == 405


def test_without_a_page_the_service_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger=page_files.__name__):
        assert page_files.find_page(tmp_path / "page") is None
    (said,) = caplog.messages
    assert str(tmp_path / "page") in said
    assert "make page" in said


@pytest.mark.skipif(not (PAGE / "index.html").is_file(), reason="make page has built no page here")
def test_the_built_page_holds_what_it_names() -> None:
    text = (PAGE / "index.html").read_text("utf-8")
    named = re.findall(r'(?:src|href)="(?:\./|/)?(assets/[^"]+)"', text)
    assert named
    for name in named:
        assert (PAGE / name).is_file(), name
        assert re.search(r"-[\w-]{8,}\.\w+$", name), f"{name} has no hash of its content"
    assert "<script>" not in text, "the policy forbids scripts inside the page"
    for packed in PAGE.rglob("*.gz"):
        assert gzip.decompress(packed.read_bytes()) == packed.with_suffix("").read_bytes()


def test_the_document_of_the_interface_does_not_know_the_page() -> None:
    document = Path(__file__).parents[1] / "fixtures/openapi.json"
    assert "/" not in json.loads(document.read_text("utf-8"))["paths"]
