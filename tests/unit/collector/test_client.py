"""The schedulers' client: requests and answers match the OpenAPI document; it reports doubt."""

from __future__ import annotations

import http.server
import json
import re
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collector.cli import main
from collector.shims import fabricscope_client
from collector.shims.fabricscope_client import Client, Doubt, Error, Refused, Unreachable

OPENAPI = json.loads((Path(__file__).parents[2] / "fixtures/openapi.json").read_bytes())
Answer = tuple[int, dict[str, str], bytes]


class Asked:
    """A request that the service received."""

    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        self.method, self.headers, self.body = method, headers, body
        self.path, _, query = target.partition("?")
        self.query = urllib.parse.parse_qs(query)


class Service:
    """A fake service that answers with ``answer`` and records each request."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answer: Callable[[Asked], Answer | None] = by_the_document
        """None: the connection ends without an answer."""


@pytest.fixture
def service() -> Iterator[tuple[Service, str]]:
    told = Service()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked = Asked(self.command, self.path, dict(self.headers), body)
            told.asked.append(asked)
            answer = told.answer(asked)
            if answer is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            status, headers, content = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = reply  # noqa: N815 - their names

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with serving(Handler) as url:
        yield told, url


@contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# --- the OpenAPI document ------------------------------------------------------------------------


def operation(asked: Asked) -> tuple[str, dict[str, Any]]:
    """The OpenAPI operation that this request calls."""
    for template, methods in OPENAPI["paths"].items():
        pattern = re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(pattern, asked.path) and asked.method.lower() in methods:
            return template, methods[asked.method.lower()]
    raise AssertionError(f"the interface has no {asked.method} {asked.path}")


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = OPENAPI["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def example(schema: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """A value of this schema, with every optional field."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return example(schema["anyOf"][0])
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        more = schema.get("additionalProperties")
        made = {name: example(each) for name, each in properties.items()}
        return made | ({"some": example(more)} if isinstance(more, dict) else {})
    if schema.get("type") == "array":
        return [example(schema["items"])]
    return {"string": "text", "integer": 3, "number": 0.5, "boolean": True}[schema["type"]]


def by_the_document(asked: Asked) -> Answer:
    """An answer with the schema that the OpenAPI document has for this request."""
    responses = operation(asked)[1]["responses"]
    schema = responses["200"]["content"]["application/json"]["schema"]
    made = example(schema)
    if isinstance(made, dict) and "next" in made:
        made["next"] = None
    return 200, {"Content-Type": "application/json", "ETag": '"1"'}, json.dumps(made).encode()


def ask_everything(client: Client) -> None:
    """Call every method of the client with every argument."""
    client.health()
    client.health(wait_seconds=5.0)
    client.host_health("node1")
    client.place(
        4,
        candidates=["node1"],
        gpus_per_host=8,
        same_leaf=True,
        rail_aligned=True,
        avoid=["leaf1"],
        allow=["suspect"],
        sets=2,
    )
    client.register_job(
        "1234", ["node1"], name="llama", user="ada", scheduler="slurm", cluster="one"
    )
    client.end_job("1234", "2026-11-16T10:00:00Z")
    client.verdict("1234")
    assert list(client.incidents(state="open", host="node1", job="1234"))
    client.hold("node1", "draining", reason="new cable", by="ada", hours=2)
    client.release("node1", by="ada")
    assert client.actions("standing").actions
    client.approve("a1", by="ada", words="yes")
    client.reject("a1", by="ada", words="no")
    client.undo("a1", by="ada", words="well again")
    client.applied("a1", executor="slurm", outcome="done", words="drained")


def test_every_question_and_answer_is_the_interfaces(service: tuple[Service, str]) -> None:
    """Paths, parameters and bodies exist; each answer has every field of the client, typed."""
    told, url = service
    with Client(url) as client:
        ask_everything(client)
    for asked in told.asked:
        template, known = operation(asked)
        names = {each["name"] for each in known.get("parameters", ()) if each["in"] == "query"}
        assert set(asked.query) <= names, template
        if asked.body:
            content = known["requestBody"]["content"]["application/json"]
            body = resolved(content["schema"])
            sent = json.loads(asked.body)
            assert set(sent) <= set(body["properties"]), template
            assert set(body.get("required", ())) <= set(sent), template


def test_every_method_of_the_client_was_asked(service: tuple[Service, str]) -> None:
    told, url = service
    calls: list[str] = []

    class Counted(Client):
        def __getattribute__(self, name: str) -> Any:  # noqa: ANN401
            calls.append(name)
            return super().__getattribute__(name)

    with Counted(url) as client:
        ask_everything(client)
    public = {name for name in vars(Client) if not name.startswith("_")} - {"close"}
    assert public <= set(calls)
    assert told.asked


# --- retries and refusals ------------------------------------------------------------------------


def refuses(status: int, *, retry_after: str = "", **said: str) -> Callable[[Asked], Answer]:
    headers = {"Retry-After": retry_after} if retry_after else {}
    return lambda _: (status, headers, json.dumps({"status": status, **said}).encode())


class Turns:
    """Gives the answers in turn, then repeats the last one."""

    def __init__(self, *answers: Callable[[Asked], Answer | None]) -> None:
        self._answers = list(answers)

    def __call__(self, asked: Asked) -> Answer | None:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return answer(asked)


def test_who_is_busy_is_asked_again_after_as_long_as_it_says(
    service: tuple[Service, str],
) -> None:
    told, url = service
    told.answer = Turns(refuses(503, retry_after="2"), refuses(429), by_the_document)
    pauses: list[float] = []
    with Client(url, pause=pauses.append) as client:
        assert client.health().hosts
    assert len(told.asked) == 3
    assert 1.0 <= pauses[0] <= 3.0
    assert 0.2 <= pauses[1] <= 0.6


def test_doubt_is_not_an_answer(service: tuple[Service, str]) -> None:
    told, url = service
    told.answer = refuses(503, title="stale health", detail="the inventory cannot be read")
    with (
        Client(url, retries=1, pause=lambda _: None) as client,
        pytest.raises(Doubt, match="stale health: the inventory cannot be read"),
    ):
        client.health()
    assert len(told.asked) == 2


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, {"title": "no token", "detail": "send Authorization: Bearer"}),
        (403, {"title": "not allowed", "detail": "this token has scope read; operate is needed"}),
        (404, {"title": "no such host", "detail": "no sample of 'nod1' has ever come"}),
        (422, {"title": "cannot place", "detail": "size is 9", "rule": "placement_leaf_too_small"}),
    ],
)
def test_a_no_is_said_in_the_services_words_and_not_asked_again(
    service: tuple[Service, str], status: int, said: dict[str, str]
) -> None:
    told, url = service
    told.answer = refuses(status, **said)
    with Client(url) as client, pytest.raises(Refused) as caught:
        client.place(9)
    assert str(caught.value) == f"{said['title']}: {said['detail']}"
    assert (caught.value.status, caught.value.rule) == (status, said.get("rule", ""))
    assert not isinstance(caught.value, Doubt)
    assert len(told.asked) == 1


def test_a_lost_answer_is_asked_for_again_where_that_is_harmless(
    service: tuple[Service, str],
) -> None:
    told, url = service
    told.answer = Turns(lambda _: None, by_the_document)
    with Client(url, pause=lambda _: None) as client:
        assert client.place(1).sets
        told.answer = lambda _: None
        before = len(told.asked)
        with pytest.raises(Unreachable):
            client.approve("a1", by="ada")
    assert len(told.asked) == before + 1


def test_nobody_there(service: tuple[Service, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        pauses: list[float] = []
        with (
            Client(url, retries=2, pause=pauses.append) as client,
            pytest.raises(Unreachable, match=re.escape(url)),
        ):
            client.health()
    assert len(pauses) == 2
    del service


def test_health_is_kept_by_its_tag(service: tuple[Service, str]) -> None:
    told, url = service
    with Client(url) as client:
        first = client.health()
        told.answer = lambda _: (304, {"ETag": '"1"'}, b"")
        assert client.health(wait_seconds=3.0) is first
    assert told.asked[1].headers["If-None-Match"] == '"1"'
    assert told.asked[1].query == {"wait": ["3.0"]}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>a proxy</html>", "no JSON"),
        (b"[]", "an object was expected, not list"),
        (b'{"counts": {}, "stale": []}', "has no items"),
        (b'{"counts": {"a": "b"}, "stale": [], "items": []}', "health.counts.a is 'b'"),
        (b'{"counts": {}, "stale": [], "items": [{"host": 1}]}', r"health.items\[0\].host is 1"),
    ],
)
def test_what_is_no_answer_is_named(service: tuple[Service, str], body: bytes, said: str) -> None:
    told, url = service
    told.answer = lambda _: (200, {}, body)
    with Client(url) as client, pytest.raises(Unreachable, match=said):
        client.health()


def test_an_answer_without_end_is_not_read(
    service: tuple[Service, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told, url = service
    monkeypatch.setattr(fabricscope_client, "ANSWER_BYTES_MAX", 100)
    told.answer = lambda _: (200, {}, b" " * 101)
    with Client(url) as client, pytest.raises(Unreachable, match="more than 100 bytes"):
        client.health()


def test_a_token_is_sent_and_a_file_is_read_each_time(
    service: tuple[Service, str], tmp_path: Path
) -> None:
    told, url = service
    file = tmp_path / "token"
    file.write_text("one\n")
    with Client(url, token_file=str(file)) as client:
        client.health()
        file.write_text("two\n")
        client.health()
        file.unlink()
        with pytest.raises(Error, match="token_file"):
            client.health()
    assert [each.headers["Authorization"] for each in told.asked] == ["Bearer one", "Bearer two"]


def test_names_cannot_leave_their_place_in_the_address(service: tuple[Service, str]) -> None:
    told, url = service
    with Client(url) as client:
        client.host_health("../v1/hosts?x=1#")
    assert told.asked[0].path == "/v1/hosts/..%2Fv1%2Fhosts%3Fx%3D1%23/health"


@pytest.mark.parametrize("url", ["fabricscope:9700", "ftp://x", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Error, match="write http://host:port"):
        Client(url)


def test_the_file_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shim", "client"]) == 0
    source = Path(fabricscope_client.__file__).read_text("utf-8")
    assert capsys.readouterr().out == source
