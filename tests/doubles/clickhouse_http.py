"""A ClickHouse server by URL, for tests: the real engine (chDB) behind ClickHouse's HTTP interface.

No package of a ClickHouse server new enough exists where these tests run, so this speaks the part
of its HTTP interface that clickhouse-connect uses: the query in the body or in `query`, bound
values as `param_*`, settings in the query string or per connection, errors with their code in
`X-ClickHouse-Exception-Code`. The engine allows one data path in a process, so the server is a
process of its own: `python -m tests.doubles.clickhouse_http DIR` prints its port.
"""

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from email.message import Message
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import chdb
import cramjam

ROOT = Path(__file__).resolve().parents[2]

# What the HTTP interface itself understands; everything else in the query string is a setting.
NO_SETTINGS = frozenset(
    {
        "database",
        "query",
        "query_id",
        "session_id",
        "session_timeout",
        "session_check",
        "compress",
        "decompress",
        "default_format",
        "client_protocol_version",
        "wait_end_of_query",
        "send_progress_in_http_headers",
        "http_headers_progress_interval_ms",
        "enable_http_compression",
        "quota_key",
        "role",
        "user",
        "password",
        "cancel_http_readonly_queries_on_client_close",
        "buffer_size",
    }
)
INSERT = re.compile(rb"\s*(INSERT\s+INTO\s.+?)\s+FORMAT\s+(\w+)\s*$", re.IGNORECASE | re.DOTALL)
INSERT_LINE = re.compile(rb"\s*INSERT\s+INTO\s[^\n]*\sFORMAT\s+\w+\s*\n", re.IGNORECASE)
ERROR_CODE = re.compile(r"Code: (\d+)")
FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)


class Engine:
    """The one engine of this process, kept open; each statement has a connection of its own."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._keep_open = self.connect()

    def connect(self) -> Any:  # noqa: ANN401 - chDB ships no types
        """A connection to the engine, with settings of its own."""
        # Of the two packages that make up chDB one has types, and either may be found first.
        engine: Any = chdb
        return engine.connect(self._folder)

    def ask(self, sql: str, asked: dict[str, str]) -> tuple[str, bytes]:
        """Format and bytes of the answer. Settings hold for this one statement."""
        values = {
            name.removeprefix("param_"): value
            for name, value in asked.items()
            if name.startswith("param_")
        }
        settings = {
            name: value
            for name, value in asked.items()
            if name not in NO_SETTINGS and not name.startswith("param_")
        }
        found = FORMAT.search(sql)
        chosen = found[1] if found else asked.get("default_format", "TabSeparated")
        with contextlib.closing(self.connect()) as connection:
            if settings:
                words = ", ".join(f"{name} = {quote(value)}" for name, value in settings.items())
                connection.query(f"SET {words}")
            answer = connection.query(sql, chosen, params=values or None)
            return chosen, answer.bytes() or b""


def quote(text: str) -> str:
    """An SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class Handler(BaseHTTPRequestHandler):
    """One request, one statement."""

    protocol_version = "HTTP/1.1"
    engine: ClassVar[Engine]

    def do_GET(self) -> None:
        """A statement in the query string, or a ping."""
        if urlsplit(self.path).path == "/ping":
            self.reply(200, b"Ok.\n", {})
        else:
            self.do_POST()

    def do_POST(self) -> None:
        """A statement in the body or the query string, with data behind it if it inserts."""
        asked = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        content = self.read_body()
        if self.headers.get("Content-Encoding") == "lz4":
            content = bytes(cramjam.lz4.decompress(content))
        if self.headers.get_content_type() == "multipart/form-data":
            asked |= form_fields(self.headers, content)
            content = b""
        try:
            chosen, answer = self.execute(asked, content)
        except RuntimeError as error:
            code = ERROR_CODE.search(str(error))
            self.reply(
                500, str(error).encode(), {"X-ClickHouse-Exception-Code": code[1] if code else "1"}
            )
            return
        self.reply(
            200,
            answer,
            {
                "X-ClickHouse-Format": chosen,
                "X-ClickHouse-Timezone": "UTC",
                "X-ClickHouse-Summary": '{"written_rows":"0"}',
                "X-ClickHouse-Query-Id": asked.get("query_id", ""),
            },
        )

    def execute(self, asked: dict[str, str], content: bytes) -> tuple[str, bytes]:
        """Run what was asked for."""
        statement = asked.get("query", "").encode()
        if not statement and (line := INSERT_LINE.match(content)):
            statement, content = line[0], content[line.end() :]
        if statement and (insert := INSERT.match(statement)):
            return self.insert(insert, content, asked)
        return self.engine.ask((statement + content).decode(), asked)

    def insert(
        self, insert: re.Match[bytes], content: bytes, asked: dict[str, str]
    ) -> tuple[str, bytes]:
        """Insert the bytes that came with an INSERT statement."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            target, form = insert[1].decode(), insert[2].decode()
            sql = f"{target} FROM INFILE {quote(file.name)} FORMAT {form}"
            self.engine.ask(sql, asked)
        return form, b""

    def read_body(self) -> bytes:
        """The body, whether its length was declared or it comes in chunks."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def reply(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        """Answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing: the tests speak."""


def form_fields(headers: Message, content: bytes) -> dict[str, str]:
    """The fields of a form: long queries and values come so."""
    head = f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode()
    form = BytesParser().parsebytes(head + content)
    fields = {}
    for part in form.get_payload():
        assert isinstance(part, Message)
        name = part.get_param("name", header="content-disposition")
        payload = part.get_payload(decode=True)
        assert isinstance(payload, bytes)
        fields[str(name)] = payload.decode()
    return fields


def main(folder: str) -> None:
    """Serve the engine on this folder until killed; print the port first."""
    Handler.engine = Engine(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    """The `clickhouse://` URL of a server over this folder."""
    command = [sys.executable, "-m", "tests.doubles.clickhouse_http", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield f"clickhouse://127.0.0.1:{port}/default"
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main(sys.argv[1])
