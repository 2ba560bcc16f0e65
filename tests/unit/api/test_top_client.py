"""`top`'s requests: bounded answers, errors in words, and no raw text of the service."""

from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path

import httpx
import msgspec
import pytest

from api.promql.parse import parse_query
from api.remote.client import (
    NESTING_MAX,
    TEXT_CHARS_MAX,
    Away,
    Bounds,
    Busy,
    Client,
    Odd,
    Refused,
    Target,
    check_url,
    clean,
)
from api.remote.top import questions
from api.remote.top.ask import HOSTS_CHARS_MAX, ask
from api.remote.top.model import Order, View, Wanted
from collector.contract.errors import SettingsError

URL = "http://service.test:9700"
NOW = 1_794_787_200.0
EVERYTHING = Wanted(views=frozenset(View))
HOSTILE = "x\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r\n[red]"
EMPTY: dict[str, object] = {"items": [], "next": None, "data": {"result": []}}

Handler = Callable[[httpx.Request], httpx.Response]


def connect(handler: Handler, bounds: Bounds | None = None, **target: str) -> Client:
    return Client(
        Target(url=URL, **target),
        "test",
        bounds=bounds,
        for_terminal=True,
        transport=httpx.MockTransport(handler),
        clock=lambda: NOW,
    )


def answering(body: object, status: int = 200, **headers: str) -> Handler:
    return lambda _: httpx.Response(status, json=body, headers=headers)


# --- hostile answers ------------------------------------------------------------------------------


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from (*texts(key), *texts(each))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts(each)


def hostile_service(request: httpx.Request) -> httpx.Response:
    """Answers with hostile text in every text field."""
    path, question = request.url.path, request.url.params.get("query", "")
    culprit = {"host": HOSTILE, "device": HOSTILE, "job": HOSTILE, "switch": HOSTILE}
    incident = {
        "id": "i1",
        "state": "open",
        "cause": HOSTILE,
        "culprit": culprit,
        "confidence": 0.5,
        "since_ns": 1,
        "summary": HOSTILE,
        "action": HOSTILE,
        "jobs": [HOSTILE],
        "something": {"new": HOSTILE},
    }
    labels = {"job": HOSTILE, "host": HOSTILE, "device": HOSTILE, "peer_name": HOSTILE}
    host = {"host": HOSTILE, "last_seen": "2026-11-16T00:00:00Z"}
    answers: dict[str, object] = {
        "/v1/incidents": {"items": [incident]},
        "/v1/incidents/i1": {
            "id": "i1",
            "state": "open",
            "verdict": {**incident, "ruled_out": [{"what": HOSTILE, "why": HOSTILE}]},
        },
        "/v1/jobs": {"items": [{"id": HOSTILE}]},
        "/v1/hosts": {"items": [] if "role" in request.url.params else [host]},
        "/v1/links": {"items": [{"a": HOSTILE, "b": HOSTILE}]},
    }
    what = "" if "topk" in question or "host=~" in question else "step_s"
    series = {"metric": {**labels, "what": what}, "value": [NOW, "1"], "values": [[NOW, "1"]]}
    body = answers.get(path, {"data": {"result": [series]}})
    return httpx.Response(200, json=body)


def test_no_text_of_the_service_gets_through_raw() -> None:
    picture = ask(connect(hostile_service), Wanted(views=frozenset(View), incident="i1"))
    assert not picture.problems
    told = [*texts(msgspec.to_builtins(picture))]
    assert any("owned" in text for text in told)
    assert all(text.isprintable() for text in told)
    for rows in (picture.jobs, picture.links, picture.hosts):
        assert rows


def test_texts_are_cut_and_nests_end() -> None:
    assert clean("x" * 10 * TEXT_CHARS_MAX) == "x" * TEXT_CHARS_MAX
    nest: object = "deep"
    for _ in range(NESTING_MAX + 1):
        nest = [nest]
    assert "deep" not in list(texts(clean(nest)))
    assert clean({"a\x1b": [1, None, True, 1.5]}) == {"a\ufffd": [1, None, True, 1.5]}


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"",
        b"[]",
        b'{"items": 7}',
        b'{"items": [{"id": 7}]}',
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"items": [{"id": "i", "state": "open", "cause": "c", "culprit": 3}]}',
    ],
)
def test_what_is_no_answer_is_odd_and_breaks_nothing(body: bytes) -> None:
    client = connect(lambda _: httpx.Response(200, content=body))
    with pytest.raises(Odd, match="not an answer of Fabricscope"):
        ask(client, EVERYTHING)


def test_an_answer_without_an_end_is_left() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=b" " * 4_096)

    with pytest.raises(Odd, match="MiB"):
        ask(connect(handler, Bounds(answer_bytes=1_000)), EVERYTHING)
    with pytest.raises(Busy):
        ask(connect(handler, Bounds(answer_s=-1.0)), EVERYTHING)


# --- errors in words ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_says_what_to_do(status: int, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"asks for a token: start with --token-file FILE"):
        ask(connect(answering({}, status)), EVERYTHING)
    (tmp_path / "token").write_text("one-that-is-too-old\n")
    wrong = connect(answering({}, status), token_file=str(tmp_path / "token"))
    with pytest.raises(Refused, match="does not accept this token") as caught:
        ask(wrong, EVERYTHING)
    assert "too-old" not in str(caught.value)


def test_errors_tell_what_the_service_says_without_its_escapes() -> None:
    body = {"title": "busy", "detail": HOSTILE}
    with pytest.raises(Busy, match="HTTP 503 busy") as caught:
        ask(connect(answering(body, 503)), EVERYTHING)
    assert str(caught.value).isprintable()
    with pytest.raises(Odd, match="HTTP 404"):
        ask(connect(answering({}, 404)), EVERYTHING)
    with pytest.raises(Odd, match=r"sends us to https://login.test"):
        ask(connect(answering({}, 302, location="https://login.test")), EVERYTHING)


def test_a_service_that_is_not_there_is_away() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("[Errno 111] Connection refused")

    with pytest.raises(Away, match=r"9700: Connection refused \(another address: --service\)"):
        ask(connect(refuse), EVERYTHING)


def test_a_part_that_fails_costs_its_own_rows_only() -> None:
    def without_queries(request: httpx.Request) -> httpx.Response:
        if request.url.path.startswith("/api/v1/"):
            return httpx.Response(503, json={"error": "took too long"})
        return hostile_service(request)

    before = ask(connect(hostile_service), EVERYTHING)
    after = ask(connect(without_queries), EVERYTHING, before)
    assert set(after.problems) == {"fleet", "jobs", "links", "hosts"}
    assert all("took too long" in why for why in after.problems.values())
    assert (after.jobs, after.links, after.hosts) == (before.jobs, before.links, before.hosts)
    assert after.incidents


# --- tokens, addresses, clocks --------------------------------------------------------------------


def test_a_token_is_sent_and_read_anew(tmp_path: Path) -> None:
    seen = []

    def note(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(200, json=EMPTY)

    file = tmp_path / "token"
    file.write_text("first-token\n")
    client = connect(note, token_file=str(file))
    client.get("/v1/incidents", dict)
    file.write_text("second-token\n")
    client.get("/v1/incidents", dict)
    assert seen == ["Bearer first-token", "Bearer second-token"]
    assert "secret" not in repr(Target(url=URL, token="secret"))  # noqa: S106 - a test's


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe", "tökén".encode(), b"a\x1bb"])
def test_a_file_that_holds_no_token_is_told(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    for name, words in (("token", "token"), ("none", "No such file")):
        target = Target(url=URL, token_file=str(tmp_path / name))
        with pytest.raises(SettingsError, match=words):
            target.read_token()
        with pytest.raises(Refused, match=words):
            connect(answering({}), token_file=str(tmp_path / name)).get("/v1/hosts", dict)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "service",
        "ftp://x",
        "http://",
        "http://a:0",
        "http://u:p@x",
        "http://x/?a",
        "http://x\n",
    ],
)
def test_what_is_no_address_is_told(url: str) -> None:
    with pytest.raises(SettingsError, match="--service"):
        check_url(url)


def test_ages_are_told_by_the_services_clock() -> None:
    for skew, expected in ((300.0, 300.0), (-300.0, -300.0), (1.0, 0.0)):
        client = connect(answering(EMPTY, Date=formatdate(NOW + skew, usegmt=True)))
        client.get("/v1/incidents", dict)
        assert client.skew_s == expected
        assert client.now_s == NOW + expected
    odd = connect(answering(EMPTY, Date="once upon a time"))
    odd.get("/v1/incidents", dict)
    assert odd.skew_s == 0.0


# --- the questions --------------------------------------------------------------------------------


def test_every_question_is_promql() -> None:
    asked = [questions.fleet(), questions.jobs(), questions.hosts(), questions.JOB_STEPS]
    asked += [questions.worst(order) for order in Order]
    names = ["node1", str(clean(HOSTILE)), 'a"}) or vector(1) #', "x" * HOSTS_CHARS_MAX]
    asked += [*questions.link_columns(names).values(), questions.peers(names)]
    for question in asked:
        parse_query(question)
