"""The process that owns an embedded store where several processes use it.

chDB lets one process open a data folder. So where a service has several, one of them opens it and
speaks to the others through a Unix socket: the part of ClickHouse's HTTP interface that
clickhouse-connect uses, so that they reach it as they would reach a ClickHouse server. That is:
the statement in the body or in `query`, bound values as `param_*`, settings in the query string,
columns in (Native or Arrow), Arrow out, errors with their code in `X-ClickHouse-Exception-Code`.

A question, and the rows of a group, may come in frames instead (`api.data.store.frames`), which is
what processes of the service do; groups of several of them are inserted as one.

The socket belongs to the service's user alone. What comes through it is trusted as the service's
own statements are, and bounded all the same: connections, statements at a time, bytes of a body.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import socket
import socketserver
import sys
import tempfile
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from email.message import Message
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import IO, Any, ClassVar, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import cramjam

from api.base.memory import memory_bytes
from api.base.process_limits import (
    INSERT_NOTE_BYTES_MAX,
    OWNER_BODY_BYTES_MAX,
    OWNER_CONNECTIONS_MAX,
    OWNER_INSERTS_MAX,
    OWNER_QUERIES_MAX,
    OWNER_STATEMENT_BYTES_MAX,
    OWNER_WAIT_SECONDS,
)
from api.data.store.frames import FIRST, FRAME, HEAD, REPLY, Group, Question, read_whole
from api.data.store.gathering import Gathering, Insert, NoTurnError, Part
from api.data.store.insert_log import InsertLog, Kind
from api.data.store.known import NOTED_TABLES, SAMPLES
from api.data.store.notes import NOTE_HEADER
from api.data.store.store import EMBEDDED_OPTIONS

log = logging.getLogger(__name__)

MEMORY_SHARE: Final = 2
"""The engine may use one part in so many of the machine's memory, all statements together."""
TOO_MANY_AT_ONCE: Final = 202
"""ClickHouse's code for it: TOO_MANY_SIMULTANEOUS_QUERIES."""
TOO_LARGE: Final = 307
"""ClickHouse's code for it: TOO_MANY_BYTES."""
NOT_UNDERSTOOD: Final = 36
"""ClickHouse's code for it: BAD_ARGUMENTS."""
CHUNK_BYTES: Final = 1 << 20
IN_MEMORY_BYTES_MAX: Final = 1 << 16
"""Larger bodies wait in a file; the engine reads rows from one in any case."""
NO_SETTINGS: Final = frozenset(
    {
        *("database", "query", "query_id", "quota_key", "role", "user", "password", "buffer_size"),
        *("session_id", "session_timeout", "session_check", "compress", "decompress"),
        *("default_format", "client_protocol_version", "wait_end_of_query"),
        *("send_progress_in_http_headers", "http_headers_progress_interval_ms"),
        *("enable_http_compression", "cancel_http_readonly_queries_on_client_close"),
    }
)
"""What the HTTP interface itself understands; all else in the query string is a setting."""
PARAMETER: Final = "param_"
NATIVE: Final = "Native"
SETTING_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
INSERT: Final = re.compile(
    rb"\s*(INSERT\s+INTO\s.+?)\s+FORMAT\s+(\w+)\s*$", re.IGNORECASE | re.DOTALL
)
TARGET: Final = re.compile(r"INSERT\s+INTO\s+(?:`?\w+`?\.)?`?(\w+)`?", re.IGNORECASE)
INSERT_LINE: Final = re.compile(rb"\s*INSERT\s+INTO\s[^\n]*\sFORMAT\s+\w+\s*\n", re.IGNORECASE)
KILL: Final = re.compile(r"\s*KILL\s", re.IGNORECASE)
FORMAT: Final = re.compile(r"\bFORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)
ERROR_CODE: Final = re.compile(r"Code: (\d+)")

Settings = tuple[tuple[str, str], ...]
"""Names and values, in order."""


class Refused(RuntimeError):  # noqa: N818 - reads as the statement it is
    """A request that is not executed; ``code`` is the one that ClickHouse would give."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"Code: {code}. DB::Exception: {why}")


class Engine:
    """The one engine of this process. Connections are kept by their settings. For any thread."""

    def __init__(self, folder: Path) -> None:
        options = {
            **EMBEDDED_OPTIONS,
            "max_server_memory_usage": str(memory_bytes() // MEMORY_SHARE),
        }
        self._place = f"{folder.resolve()}?{urlencode(options)}"
        self._lock = threading.Lock()
        self._idle: dict[Settings, list[Any]] = {}
        self._idle_count = 0
        self._queries = threading.BoundedSemaphore(OWNER_QUERIES_MAX)
        self._inserts = threading.BoundedSemaphore(OWNER_INSERTS_MAX)
        self._keep_open = self._connect(())

    def _connect(self, settings: Settings) -> Any:  # noqa: ANN401 - chDB ships no types
        import chdb  # noqa: PLC0415 - loads 400 MB: only the process that owns a store needs it

        # Of the two packages that make up chDB one has types, and either may be found first.
        engine: Any = chdb
        connection = engine.connect(self._place)
        if settings:
            words = ", ".join(f"{name} = {quoted(value)}" for name, value in settings)
            connection.query(f"SET {words}")
        return connection

    @contextlib.contextmanager
    def _connected(self, settings: Settings) -> Iterator[Any]:
        """Not used after a failure: chDB puts what the failed query had before the next answer."""
        with self._lock:
            idle = self._idle.get(settings)
            connection = idle.pop() if idle else None
            self._idle_count -= connection is not None
        connection = connection or self._connect(settings)
        is_kept = False
        try:
            yield connection
            with self._lock:
                is_kept = self._idle_count < OWNER_QUERIES_MAX + OWNER_INSERTS_MAX
                if is_kept:
                    self._idle.setdefault(settings, []).append(connection)
                    self._idle_count += 1
        finally:
            if not is_kept:
                connection.close()

    def ask(self, sql: str, asked: Mapping[str, str]) -> tuple[str, bytes]:
        """Format and bytes of the answer. To stop another statement needs no turn."""
        if KILL.match(sql):
            return self._execute(sql, asked)
        with in_turn(self._queries, "questions", OWNER_QUERIES_MAX):
            return self._execute(sql, asked)

    def insert(self, target: str, form: str, file: str, asked: Mapping[str, str]) -> None:
        """``target``: an INSERT INTO with its columns; the rows are in the file."""
        with in_turn(self._inserts, "inserts", OWNER_INSERTS_MAX):
            self._execute(f"{target} FROM INFILE {quoted(file)} FORMAT {form}", asked)

    def _execute(self, sql: str, asked: Mapping[str, str]) -> tuple[str, bytes]:
        values = {
            name.removeprefix(PARAMETER): value
            for name, value in asked.items()
            if name.startswith(PARAMETER)
        }
        found = FORMAT.search(sql)
        chosen = found[1] if found else asked.get("default_format", "TabSeparated")
        with self._connected(settings_in(asked)) as connection:
            answer = connection.query(sql, chosen, params=values or None)
            return chosen, answer.bytes() or b""

    def close(self) -> None:
        with self._lock:
            idle = [each for some in self._idle.values() for each in some]
            self._idle = {}
        for connection in (*idle, self._keep_open):
            connection.close()


def settings_in(asked: Mapping[str, str]) -> Settings:
    found = {
        name: value
        for name, value in asked.items()
        if name not in NO_SETTINGS and not name.startswith(PARAMETER)
    }
    for name in found:
        if not SETTING_NAME.fullmatch(name):
            raise Refused(NOT_UNDERSTOOD, f"{name!r} is no name of a setting")
    return tuple(sorted(found.items()))


@contextlib.contextmanager
def in_turn(turns: threading.BoundedSemaphore, what: str, most: int) -> Iterator[None]:
    if not turns.acquire(timeout=OWNER_WAIT_SECONDS):
        raise busy(what, most)
    try:
        yield
    finally:
        turns.release()


def busy(what: str, most: int) -> Refused:
    why = f"{most} {what} are running; none ended in {OWNER_WAIT_SECONDS:.0f} s"
    return Refused(TOO_MANY_AT_ONCE, why)


def quoted(text: str) -> str:
    """An SQL literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class Handler(BaseHTTPRequestHandler):
    """One request, one statement."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together
    engine: ClassVar[Engine]
    scratch: ClassVar[Path]
    inserts: ClassVar[InsertLog | None]
    gathering: ClassVar[Gathering]

    def handle(self) -> None:
        """Serve a connection: frames, or ClickHouse's HTTP interface, as its first byte tells."""
        if self.rfile.peek(1)[:1] != FIRST:  # type: ignore[attr-defined]
            super().handle()
            return
        while self.rfile.peek(1)[:1] and self._answer_frame():  # type: ignore[attr-defined]
            pass

    def _answer_frame(self) -> bool:
        """Whether the next frame can be read."""
        is_good, is_read = True, False
        try:
            head, parts = self._read_frame()
            is_read = True
            answer = b""
            if isinstance(head, Question):
                _, answer = self.engine.ask(head.sql, head.asked)
            else:
                self.gathering.insert(parts, head.settings)
        except NoTurnError:
            is_good, answer = False, str(busy("inserts", 1)).encode()
        except RuntimeError as error:
            is_good, answer = False, str(error).encode()
        self.wfile.write(REPLY.pack(is_good, len(answer)))
        self.wfile.write(answer)
        self.wfile.flush()
        return is_read

    def _read_frame(self) -> tuple[Question | Group, list[Part]]:
        _, head_bytes, rows_bytes = FRAME.unpack(read_whole(self.rfile, FRAME.size))
        if head_bytes > OWNER_STATEMENT_BYTES_MAX:
            raise Refused(TOO_LARGE, f"OWNER_STATEMENT_BYTES_MAX is {OWNER_STATEMENT_BYTES_MAX}")
        if rows_bytes > OWNER_BODY_BYTES_MAX:
            raise Refused(TOO_LARGE, f"OWNER_BODY_BYTES_MAX is {OWNER_BODY_BYTES_MAX}")
        head = HEAD.decode(read_whole(self.rfile, head_bytes))
        if isinstance(head, Question):
            return head, []
        lengths = [rows.length for rows in head.rows]
        if min(lengths, default=0) < 0 or sum(lengths) != rows_bytes:
            raise Refused(TOO_LARGE, f"a frame of {rows_bytes} bytes has tables of {lengths}")
        return head, [Part(rows, read_whole(self.rfile, rows.length)) for rows in head.rows]

    def do_GET(self) -> None:
        """A statement in the query string, or a ping."""
        if urlsplit(self.path).path == "/ping":
            self._reply(200, b"Ok.\n", {})
        else:
            self.do_POST()

    def do_POST(self) -> None:
        """A statement in the body or the query string, with data behind it if it inserts."""
        asked = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        try:
            with tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES_MAX, dir=str(self.scratch)) as body:
                self._read_body(body)
                chosen, answer = self._execute(asked, body)
        except RuntimeError as error:
            code = ERROR_CODE.search(str(error))
            name = "X-ClickHouse-Exception-Code"
            self._reply(500, str(error).encode(), {name: code[1] if code else "1"})
            # Of a body that was refused the rest may still be in the pipe.
            self.close_connection = isinstance(error, Refused)
            return
        headers = {
            "X-ClickHouse-Format": chosen,
            "X-ClickHouse-Timezone": "UTC",
            "X-ClickHouse-Summary": '{"written_rows":"0"}',
            "X-ClickHouse-Query-Id": asked.get("query_id", ""),
        }
        self._reply(200, answer, headers)

    def _execute(self, asked: dict[str, str], body: IO[bytes]) -> tuple[str, bytes]:
        if self.headers.get_content_type() == "multipart/form-data":
            asked |= form_fields(self.headers, head_of(body))
            body.truncate(0)
        insert = INSERT.match(asked.get("query", "").encode())
        if insert is None and "query" not in asked:
            body.seek(0)
            line = body.readline(OWNER_STATEMENT_BYTES_MAX)
            insert = INSERT.match(line) if INSERT_LINE.match(line) else None
        else:
            body.seek(0)
        if insert is not None:
            return self._insert(insert[1].decode(), insert[2].decode(), body, asked)
        sql = asked.get("query", "").encode() + head_of(body)
        return self.engine.ask(sql.decode(), asked)

    def _insert(
        self, target: str, form: str, rows: IO[bytes], asked: Mapping[str, str]
    ) -> tuple[str, bytes]:
        """Insert the rows that the file has from its position on."""
        if not rows.tell():
            file = f"/proc/self/fd/{rows.fileno()}"
            rows.flush()
            is_written = False
            try:
                self.engine.insert(target, form, file, asked)
                is_written = True
            finally:
                # Before the answer: who was acknowledged is read by all.
                self._tell(target, form, rows, is_written=is_written)
            return form, b""
        with tempfile.TemporaryFile(dir=self.scratch) as only_rows:
            while chunk := rows.read(CHUNK_BYTES):
                only_rows.write(chunk)
            return self._insert(target, form, rewound(only_rows), asked)

    def _tell(self, target: str, form: str, rows: IO[bytes], *, is_written: bool) -> None:
        """Tell the other processes of an insert."""
        found = TARGET.match(target)
        table = found[1] if found else ""
        if self.inserts is None or table not in NOTED_TABLES:
            return
        content, note = b"", self.headers.get(NOTE_HEADER, "")
        if is_written and table == SAMPLES and self.inserts.takes(rows.seek(0, io.SEEK_END)):
            rows.seek(0)
            content = rows.read()
        packed = b64decode(note) if len(note) <= 2 * INSERT_NOTE_BYTES_MAX else b""
        tell(self.inserts, table, form, content, packed, is_written=is_written)

    def _read_body(self, into: IO[bytes]) -> None:
        """The body, whether its length was declared or it comes in chunks."""
        packed = self.headers.get("Content-Encoding", "")
        if packed not in {"", "lz4"}:
            raise Refused(NOT_UNDERSTOOD, f"the body is packed with {packed!r}")
        taken = 0
        for chunk in self._chunks():
            taken += len(chunk)
            if taken > OWNER_BODY_BYTES_MAX:
                raise Refused(TOO_LARGE, f"OWNER_BODY_BYTES_MAX is {OWNER_BODY_BYTES_MAX}")
            into.write(chunk)
        if packed:
            into.seek(0)
            unpacked = bytes(cramjam.lz4.decompress(into.read()))
            into.seek(0)
            into.truncate()
            into.write(unpacked)
        into.flush()

    def _chunks(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            left = int(self.headers.get("Content-Length", "0"))
            while left > 0 and (chunk := self.rfile.read(min(left, CHUNK_BYTES))):
                left -= len(chunk)
                yield chunk
            if left:
                raise Refused(NOT_UNDERSTOOD, f"the body ended {left} bytes early")
            return
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            if size > OWNER_BODY_BYTES_MAX:
                raise Refused(TOO_LARGE, f"OWNER_BODY_BYTES_MAX is {OWNER_BODY_BYTES_MAX}")
            chunk = self.rfile.read(size)
            if len(chunk) < size:
                raise Refused(NOT_UNDERSTOOD, "the body ended early")
            yield chunk
            self.rfile.readline()
        self.rfile.readline()

    def _reply(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def address_string(self) -> str:
        """The other end of a Unix socket has no address."""
        return "a process of this service"

    def log_message(self, *_: object) -> None:
        """No line for each statement; what fails is in the log of the process that asked."""


def tell(
    inserts: InsertLog, table: str, form: str, content: bytes, note: bytes, *, is_written: bool
) -> None:
    """Log an insert: its samples, or else its note, or else that it may have had anything."""
    kind, body = Kind.UNKNOWN if is_written else Kind.FAILED, table.encode()
    if is_written and table == SAMPLES and form == NATIVE and content:
        if inserts.takes(len(content)):
            kind, body = Kind.SAMPLES, content
    elif is_written and note:
        kind, body = Kind.NOTED, note
    inserts.add(kind, body)


class Gatherer:
    """Writes what was gathered."""

    def __init__(self, engine: Engine, inserts: InsertLog | None) -> None:
        self._engine = engine
        self._inserts = inserts

    def insert(self, insert: Insert, settings: dict[str, str]) -> None:
        """Insert it, and tell the other processes of each part before any of them is answered."""
        rows, is_written = insert.rows, False
        try:
            with in_memory_file(insert.content()) as file:
                self._engine.insert(rows.target, rows.form, file, settings)
            is_written = True
        finally:
            if self._inserts is not None and rows.table in NOTED_TABLES:
                for part in insert.parts:
                    each = part.rows
                    tell(
                        self._inserts,
                        each.table,
                        each.form,
                        part.content,
                        each.note,
                        is_written=is_written,
                    )


@contextlib.contextmanager
def in_memory_file(content: bytes) -> Iterator[str]:
    """The path of a file that has this: the engine reads rows from files."""
    descriptor = os.memfd_create("rows")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def rewound(file: IO[bytes]) -> IO[bytes]:
    file.flush()
    file.seek(0)
    return file


def head_of(body: IO[bytes]) -> bytes:
    """All of a body that is a statement or a form."""
    body.seek(0)
    found = body.read(OWNER_STATEMENT_BYTES_MAX + 1)
    if len(found) > OWNER_STATEMENT_BYTES_MAX:
        raise Refused(TOO_LARGE, f"OWNER_STATEMENT_BYTES_MAX is {OWNER_STATEMENT_BYTES_MAX}")
    return found


def form_fields(headers: Message, content: bytes) -> dict[str, str]:
    """The fields of a form: long queries and values come so."""
    head = f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode()
    form = BytesParser().parsebytes(head + content)
    fields = {}
    for part in form.get_payload():
        if not isinstance(part, Message):
            raise Refused(NOT_UNDERSTOOD, "a form without parts")
        name = part.get_param("name", header="content-disposition")
        payload = part.get_payload(decode=True)
        fields[str(name)] = payload.decode() if isinstance(payload, bytes) else ""
    return fields


class Owner(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves a store over a socket that is bound already; one thread a connection."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = OWNER_CONNECTIONS_MAX

    def __init__(
        self, folder: Path, bound: socket.socket, scratch: Path, inserts: InsertLog | None = None
    ) -> None:
        """``scratch``: where rows wait in files, on the disk of the store.

        ``inserts``: where other processes learn of all inserts.
        """
        engine = Engine(folder)
        if inserts is not None:
            inserts.begin()
        gathering = Gathering(Gatherer(engine, inserts).insert)
        words = {"engine": engine, "scratch": scratch, "inserts": inserts, "gathering": gathering}
        bounded = type("BoundHandler", (Handler,), words)
        super().__init__(("", 0), bounded, bind_and_activate=False)
        self.socket.close()
        self.socket = bound
        self.engine = engine
        self._open = threading.Condition()
        self._open_count = 0
        self.refused = 0
        """Connections that were closed at once, because there were too many."""
        self.server_activate()

    def verify_request(self, *_: object) -> bool:
        """Whether there is room for one more connection."""
        with self._open:
            if self._open_count < OWNER_CONNECTIONS_MAX:
                self._open_count += 1
                return True
        self.refused += 1
        log.warning("store: OWNER_CONNECTIONS_MAX = %d are open", OWNER_CONNECTIONS_MAX)
        return False

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the class above has it
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._open:
                self._open_count -= 1
                self._open.notify_all()

    def drain(self, seconds: float) -> bool:
        """Wait until no process is connected any more, so long at most; whether it is so."""
        with self._open:
            return self._open.wait_for(lambda: not self._open_count, seconds)

    def handle_error(self, *_: object) -> None:
        """A process that was killed leaves half a request: no news."""
        log.debug("store: a connection broke: %s", sys.exception())


def own_store(
    folder: Path,
    bound: socket.socket,
    scratch: Path,
    when_ready: Callable[[Owner], None],
    inserts: InsertLog | None = None,
) -> None:
    """Serve the store until `shutdown`; ``when_ready`` is called once it listens."""
    with Owner(folder, bound, scratch, inserts) as owner:
        try:
            when_ready(owner)
            owner.serve_forever()
        finally:
            owner.engine.close()
