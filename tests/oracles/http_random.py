"""Random requests for every operation of an OpenAPI document: valid, nearly valid and hostile.

`Maker(document, seed, known)` makes one request after the other; the same seed makes the same ones.
Values come from three sources: those that exist in the service (``known``, by a parameter's name),
those that the schema allows and their neighbours, and `ODD`. What an operation may answer is the
document's to say: `tests/conformance/test_http_random.py` holds the answers against it.
"""

import gzip
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

import cramjam

from tests.worlds import remote_write as rw

ODD: tuple[str, ...] = (
    "",
    " ",
    "x",
    "-1",
    "0",
    "1",
    "-0",
    "1e9999",
    "nan",
    "-inf",
    "1_0",
    "٣",
    "0x10",
    "true",
    "null",
    "99999999999999999999999999",
    str(2**31),
    str(2**63),
    str(-(2**63) - 1),
    "9" * 400,
    "\0",
    "\n",
    "\r\nX-Injected: 1",
    "%00",
    "é",
    "\u202e",
    "\ufeff",
    "\U0001f600" * 20,
    "'; DROP TABLE samples; --",
    "{{7*7}}",
    "../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "..",
    ".",
    "a/b/c",
    "a" * 5000,
    "a/" * 500,
    "2023-11-14",
    "2023-11-14T22:13:20",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59+00:00",
    "9999-12-31T23:59:59-23:59",
    "{",
    "up{",
    'up{a=~"("}',
    'up{a=~"(?=x)"}',
    'up{a=~"a{1000}{1000}"}',
    'up{a=~"(a+)+$"}',
    "up offset 5m",
    "up @ 5",
    "up[5m]",
    "up[5m:1ns]",
    "sum(up)",
    "((((" * 200,
    '{a="b" or c="d"}',
    '{__name__=~".*"}',
    '{__name__=~".+"}',
    "{}",
)
"""Values that break parsers, one by one."""

RAW = (b"\xff", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"a\x80b")
"""Bytes that are no text: among them a lone surrogate and one that is written too long."""

WRONG_TYPES = (
    "",
    "text/plain",
    "application/json; charset=utf-16",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/x-protobuf",
    "application/json, text/plain",
    "a" * 300,
)
ENCODINGS = ("gzip", "zstd", "snappy", "deflate", "br", "identity", "gzip, gzip", "x")
DEEP = 20_000
"""Brackets inside each other: more than any parser goes down."""
BOMB_BYTES = 64 << 20
"""What a bomb unpacks to: past every bound of a body."""


def bomb_pieces() -> dict[str, bytes]:
    """Small bodies that unpack to much, by encoding."""
    zeros = bytes(BOMB_BYTES)
    return {
        "gzip": gzip.compress(zeros, 1),
        "zstd": bytes(cramjam.zstd.compress(zeros)),
        "snappy": rw.snappy(zeros),
    }


@dataclass(frozen=True)
class Operation:
    """A method of a path, as the document has it."""

    method: str
    path: str
    parameters: tuple[Mapping[str, Any], ...]
    body: Mapping[str, Any]
    """Schemas of the body by media type; none if it takes none."""
    responses: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Asked:
    """A request, whole: what goes over the wire."""

    operation: Operation
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    content: bytes
    is_chunked: bool = False

    @property
    def is_elsewhere(self) -> bool:
        """Whether a value in the path has a slash or is empty, so that the path is another one."""
        path = unquote_to_bytes(self.target.partition(b"?")[0])
        return path.count(b"/") != self.operation.path.count("/") or path.endswith(b"/")

    def __str__(self) -> str:
        return (
            f"{self.operation.method} {self.target[:300]!r} headers={self.headers!r:.600} "
            f"body({len(self.content)})={self.content[:300]!r} chunked={self.is_chunked}"
        )


@dataclass
class Known:
    """What exists in the service: values by a parameter's or field's name, and bodies by path."""

    values: dict[str, list[str]]
    bodies: dict[str, list[bytes]]
    """Valid bodies that no schema describes, by operation."""
    tokens: Sequence[bytes] = (b"",)
    """Values of Authorization; empty: none is sent."""
    pages: list[str] = field(default_factory=list)
    """`next` of answers that came: they are what `after` takes."""


def operations_of(document: Mapping[str, Any]) -> list[Operation]:
    return [
        Operation(
            method=method.upper(),
            path=path,
            parameters=tuple(operation.get("parameters", ())),
            body={
                media: content.get("schema", {})
                for media, content in operation.get("requestBody", {}).get("content", {}).items()
            },
            responses={
                status: document["components"]["responses"][shown["$ref"].rpartition("/")[2]]
                if "$ref" in shown
                else shown
                for status, shown in operation["responses"].items()
            },
        )
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


class Maker:
    """Makes requests; ``known`` may grow while it does."""

    def __init__(self, document: Mapping[str, Any], seed: int, known: Known) -> None:
        self.random = random.Random(seed)
        self.known = known
        self.operations = operations_of(document)
        self._document = document
        self._bombs = bomb_pieces()
        self._malice = 0.0

    def make(self, operation: Operation | None = None) -> Asked:
        """A request; of any operation if none is given."""
        chosen = operation or self.random.choice(self.operations)
        # One odd part in a good request goes further than ten.
        self._malice = self.random.choice((0.0, 0.0, 0.2, 0.5, 1.0))
        content, media, encoding = self._content(chosen)
        headers = self._headers(chosen, media, encoding)
        return Asked(
            operation=chosen,
            target=self._target(chosen),
            headers=tuple(headers),
            content=content,
            is_chunked=bool(content) and self._often(0.15),
        )

    def with_value(self, operation: Operation, name: str, value: str) -> Asked:
        """A plain request in which one parameter has this value and the others are as needed."""
        texts = {
            each["name"]: self.known.values.get(each["name"], ["up"])[0]
            for each in operation.parameters
            if each.get("required")
        }
        texts[name] = value
        path = re.sub(
            r"{(\w+)}", lambda found: quoted(texts.pop(found[1]).encode()), operation.path
        )
        shown = {each["name"]: each["in"] for each in operation.parameters}
        query = "&".join(
            f"{quoted(key.encode())}={quoted(text.encode())}"
            for key, text in texts.items()
            if shown[key] == "query"
        )
        headers = [(b"authorization", self.known.tokens[0])]
        headers += [
            (key.encode(), text.encode())
            for key, text in texts.items()
            if shown[key] == "header" and is_header(text.encode())
        ]
        target = f"{path}?{query}" if query else path
        return Asked(operation, target.encode(), tuple(headers), b"")

    # --- parts of a request --------------------------------------------------------------------

    def _often(self, share: float) -> bool:
        return self.random.random() < share

    def _target(self, operation: Operation) -> bytes:
        path = operation.path
        for each in operation.parameters:
            if each["in"] == "path":
                value = self._bytes_of(each["name"], each["schema"])
                path = path.replace(f"{{{each['name']}}}", quoted(value))
        pairs: list[bytes] = []
        share = self.random.choice((0.1, 0.4, 0.8))
        for each in operation.parameters:
            if each["in"] != "query" or not (each.get("required") or self._often(share)):
                continue
            for _ in range(self._repeats(each["schema"])):
                name = quoted(each["name"].encode(), safe="[]")
                value = self._bytes_of(each["name"], each["schema"])
                pairs.append(f"{name}={quoted(value)}".encode())
        if self._often(0.05):
            pairs.append(self.random.choice((b"x", b"=", b"&&&", b"%", b"%zz=%zz", b"a[]=1;b=2")))
        self.random.shuffle(pairs)
        return path.encode() + (b"?" + b"&".join(pairs) if pairs else b"")

    def _repeats(self, schema: Mapping[str, Any]) -> int:
        if self._often(0.02):
            return self.random.choice((2, 20, 300))
        is_list = any(one.get("type") == "array" for one in self._choices(schema))
        return self.random.choice((1, 1, 2, 3)) if is_list else 1

    def _headers(
        self, operation: Operation, media: bytes, encoding: bytes
    ) -> list[tuple[bytes, bytes]]:
        headers = [(b"authorization", token)] if (token := self._token()) else []
        headers += [(b"content-type", media)] if media else []
        headers += [(b"content-encoding", encoding)] if encoding else []
        for each in operation.parameters:
            if each["in"] == "header" and self._often(0.5):
                value = self._bytes_of(each["name"], each["schema"])
                headers += [(each["name"].encode(), value)] if is_header(value) else []
        if self._often(0.05):
            headers.append(self.random.choice(headers or [(b"x", b"y")]))
        if self._often(0.05):
            headers.append(self.random.choice(STRANGE_HEADERS))
        return headers

    def _token(self) -> bytes:
        return self.known.tokens[0] if self._often(0.7) else self.random.choice(self.known.tokens)

    # --- values --------------------------------------------------------------------------------

    def _bytes_of(self, name: str, schema: Mapping[str, Any]) -> bytes:
        kind = self.random.random() / self._malice if self._malice else 1.0
        if kind < 0.05:
            return self.random.choice(RAW)
        if kind < 0.5:
            return self.random.choice(ODD).encode()
        text = self._text_of(name, schema)
        return (self._bent(text) if kind < 0.8 else text).encode("utf-8", "surrogatepass")

    def _text_of(self, name: str, schema: Mapping[str, Any]) -> str:
        if name == "wait":  # a long one is no oddity, only slow
            return self.random.choice(("0", "0.01"))
        if name == "after" and self.known.pages and self._often(0.7):
            return self.random.choice(self.known.pages)
        if (values := self.known.values.get(name)) and self._often(0.8):
            return self.random.choice(values)
        value = self._json_of(self.random.choice(self._choices(schema)), name, 0)
        if isinstance(value, list):
            value = value[0] if value else ""
        return value if isinstance(value, str) else json.dumps(value)

    def _bent(self, text: str) -> str:
        """A text that is nearly this one."""
        at = self.random.randint(0, len(text))
        return self.random.choice(
            (
                text[:at],
                text[at:],
                text + text,
                f" {text} ",
                f"+{text}",
                f"-{text}",
                f"{text}.5",
                f"{text}\0",
                text.upper(),
                text[:at] + chr(self.random.choice((0, 10, 0x7F, 0xE9, 0x10FFFF))) + text[at:],
            )
        )

    def _choices(self, schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The schemas that this one allows, references followed."""
        found = self._resolved(schema)
        alternatives = found.get("anyOf") or found.get("oneOf")
        return (
            [one for each in alternatives for one in self._choices(each)]
            if alternatives
            else [found]
        )

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            at: Any = self._document
            for step in schema["$ref"].removeprefix("#/").split("/"):
                at = at[step]
            schema = at
        return schema

    def _json_of(self, schema: Mapping[str, Any], name: str, depth: int) -> Any:  # noqa: ANN401
        """A value that the schema allows, as far as it says."""
        chosen = self.random.choice(self._choices(schema))
        if "const" in chosen:
            return chosen["const"]
        if "enum" in chosen:
            return self.random.choice(chosen["enum"])
        makers: dict[str, Callable[[], Any]] = {
            "integer": lambda: int(self._number(chosen)),
            "number": lambda: self._number(chosen),
            "boolean": lambda: self._often(0.5),
            "null": lambda: None,
            "array": lambda: [
                self._json_of(chosen.get("items", {}), name, depth + 1)
                for _ in range(self.random.choice((0, 1, 1, 2, 5)))
            ],
            "object": lambda: self._object(chosen, depth),
        }
        return makers.get(chosen.get("type", "string"), lambda: self._word(name, chosen))()

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        made = {
            name: self._json_of(each, name, depth + 1)
            for name, each in schema.get("properties", {}).items()
            if name in required or self._often(0.5)
        }
        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping):
            for _ in range(self.random.choice((0, 1, 2))):
                made[self._word("", {})] = self._json_of(extra, "", depth + 1)
        return made

    def _number(self, schema: Mapping[str, Any]) -> float:
        low = schema.get("minimum", schema.get("exclusiveMinimum", -10))
        high = schema.get("maximum", schema.get("exclusiveMaximum", 1000))
        if self._malice and self._often(0.3):
            return self.random.choice((low - 1, high + 1, 0, -1))
        return self.random.choice((low, high, self.random.uniform(low, high), 1, 2))

    def _word(self, name: str, schema: Mapping[str, Any]) -> str:
        if values := self.known.values.get(name):
            return self.random.choice(values)
        if schema.get("format") == "date-time":
            return self.random.choice(self.known.values["until"])
        longest: int = schema.get("maxLength", 0)
        if longest and self._malice and self._often(0.1):
            return "m" * (longest + self.random.choice((0, 1)))
        words = ("a", "node-1", "Z9_", "é", "x y", "1")
        return self.random.choice(words)

    # --- bodies --------------------------------------------------------------------------------

    def _content(self, operation: Operation) -> tuple[bytes, bytes, bytes]:
        """The body, its type and its encoding."""
        if not operation.body:
            if operation.method == "GET" and not self._often(0.02):
                return b"", b"", b""
            if operation.method == "POST":
                return self._form(operation)
            return (b"{", b"", b"") if self._often(0.05) else (b"", b"", b"")
        media = self.random.choice(list(operation.body))
        encoding = {"/v1/ingest": b"zstd", "/api/v1/write": b"snappy"}.get(operation.path, b"")
        kept = self.known.bodies.get(str(operation), ())
        if kept and self._often(0.8):
            content = self.random.choice(kept)
        else:
            content = self._json_body(operation.body[media])
        content = self._broken(content) if self._often(self._malice / 2) else content
        if self._often(self._malice / 10):
            bomb = self.random.choice(list(self._bombs))
            content, encoding = self._bombs[bomb], bomb.encode()
        if self._often(0.05):
            encoding = self.random.choice(ENCODINGS).encode()
        kind = self.random.choice(WRONG_TYPES) if self._often(0.06) else media
        return content, kind.encode(), encoding

    def _form(self, operation: Operation) -> tuple[bytes, bytes, bytes]:
        pairs = [
            f"{quoted(each['name'].encode(), safe='[]')}="
            f"{quoted(self._bytes_of(each['name'], each['schema']))}"
            for each in operation.parameters
            if each["in"] == "query" and self._often(0.6)
        ]
        content = "&".join(pairs).encode()
        if self._often(0.05):
            content = self.random.choice((b"a=" + b"x" * (2 << 20), b"a&" * 2000, b"\xff\0", b"%"))
        return content, b"application/x-www-form-urlencoded", b""

    def _json_body(self, schema: Mapping[str, Any]) -> bytes:
        value = self._json_of(schema, "", 0)
        if self._often(self._malice):
            value = self._spoilt(value)
        return json.dumps(value, ensure_ascii=self._often(0.5)).encode("utf-8", "surrogatepass")

    def _spoilt(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        """The value with one part of it replaced, left out or added."""
        if isinstance(value, dict) and value and self._often(0.8):
            key = self.random.choice(list(value))
            kind = self.random.random()
            if kind < 0.2:
                return {name: each for name, each in value.items() if name != key}
            if kind < 0.3:
                return {**value, "more": 1}
            return {**value, key: self._spoilt(value[key])}
        if isinstance(value, list) and value and self._often(0.6):
            at = self.random.randrange(len(value))
            return [*value[:at], self._spoilt(value[at]), *value[at + 1 :]]
        return self.random.choice(
            (
                *(None, True, -1, 0, 2**63, -(2**63) - 1, 1e308, 10**400, float("nan")),
                *(float("-inf"), "", "\0", "\ud800", "x" * 100_000, [], {}, [[]], {"": None}),
                [1] * 30_000,
                self.random.choice(ODD),
            )
        )

    def _broken(self, content: bytes) -> bytes:
        """Bytes that are nearly these."""
        at = self.random.randint(0, len(content))
        if self._often(0.4) and content:
            spoilt = bytearray(content)
            for _ in range(self.random.choice((1, 1, 3, 20))):
                spoilt[self.random.randrange(len(spoilt))] ^= 1 << self.random.randrange(8)
            return bytes(spoilt)
        return self.random.choice(
            (
                *(content[:at], content[at:], content + content, b"", b"\0" * 64),
                *(b"\xef\xbb\xbf" + content, content.decode("latin-1").encode("utf-16")),
                *(b"[" * DEEP, b'{"a":' * DEEP, b"null", b"1e999", b'"\\ud800"', b"NaN"),
                self.random.randbytes(self.random.choice((1, 100, 5000))),
            )
        )


STRANGE_HEADERS = (
    (b"content-type", b"\xff\xfe"),
    (b"accept", b"a" * 3000),
    (b"accept", b"application/vnd.apache.arrow.stream;q=nan"),
    (b"accept-encoding", b"gzip;q=x, *;q=0"),
    (b"if-none-match", b'"", W/"x", *' * 50),
    (b"range", b"bytes=5-2"),
    (b"origin", b"https://evil.example"),
    (b"origin", b"http://[::1"),
    (b"cookie", b"; ".join([b"a=b"] * 200)),
    (b"expect", b"x"),
    (b"x-forwarded-for", b"1.2.3.4, ::1"),
    (b"content-md5", b"\xe9"),
    (b"host", b"rebind.evil.example"),
    (b"upgrade", b"websocket"),
)
"""Headers that are legal to send."""


def quoted(value: bytes, safe: str = "") -> str:
    """Percent-encoded, dots too where they would be taken for a step up."""
    text = quote_from_bytes(value, safe=safe)
    return text.replace(".", "%2E") if set(text) == {"."} else text


def is_header(value: bytes) -> bool:
    """Whether a client may send this as a header's value: the others need a socket of their own."""
    return value == value.strip() and all(byte >= 0x20 and byte != 0x7F for byte in value)
