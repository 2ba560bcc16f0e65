"""A stand-in for the service as `fabricscope top` sees it: scripted, quick, and able to go away."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.stands.ports import free_port

END = None
"""In the queue of events: the stream ends."""


def incident(name: str, **changes: object) -> dict[str, Any]:
    """An open incident as the service lists it."""
    return {
        "id": name,
        "state": "open",
        "cause": "slow_link",
        "culprit": {"host": f"host-of-{name}"},
        "confidence": 0.9,
        "since_ns": 1_794_787_200_000_000_000,
        "summary": f"the summary of {name}",
        "action": f"the action against {name}",
        "jobs": ["train"],
        "gpu_hours": 1.5,
        "lost_seconds": 60.0,
        **changes,
    }


class FakeService:
    """Answers with what its fields say, on a port that it keeps while it is away."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.incidents: list[dict[str, Any]] = []
        self.series: list[dict[str, Any]] = []
        self.hosts: list[dict[str, Any]] = []
        self.token = ""
        self.status = 200
        self.has_stream = True
        self.asked: list[str] = []
        self.streams = 0
        self.resumed_from: list[str] = []
        self._events: queue.Queue[tuple[str, int] | None] = queue.Queue()
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        """Be there."""
        handler = type("Handler", (_Handler,), {"service": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,)).start()

    def stop(self) -> None:
        """Be gone."""
        server, self._server = self._server, None
        if server is not None:
            for _ in range(self.streams):
                self._events.put(END)
            server.shutdown()
            server.server_close()

    def tell(self, news: str, number: int) -> None:
        """An event to a stream, about the first incident."""
        self._events.put((news, number))

    def next_event(self) -> bytes | None:
        """What a stream says next; None at its end."""
        event = self._events.get()
        if event is END:
            return None
        news, number = event
        data = {"news": news, "time_ns": 1, "incident": self.incidents[0]}
        return f"id: {number}\nevent: {news}\ndata: {json.dumps(data)}\n\n".encode()

    def answer(self, path: str, query: dict[str, list[str]]) -> object:
        """The body for a path."""
        if path == "/v1/incidents":
            return {"items": self.incidents if query["state"] == ["open"] else [], "next": None}
        if path.startswith("/v1/incidents/"):
            found = [one for one in self.incidents if path.endswith(f"/{one['id']}")]
            return {"id": found[0]["id"], "state": "open", "verdict": found[0]} if found else None
        if path == "/v1/hosts":
            return {"items": [] if "role" in query else self.hosts, "next": None}
        if path.startswith("/api/v1/query"):
            return {"status": "success", "data": {"result": self.series}}
        return {"items": [], "next": None}


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    service: FakeService
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing: tests look at what was asked."""

    def do_GET(self) -> None:
        """Answer, or stream."""
        service = self.service
        parts = urlsplit(self.path)
        service.asked.append(parts.path)
        needed = f"Bearer {service.token}"
        if service.token and self.headers.get("Authorization") != needed:
            self._say(401, {"title": "who are you?"})
        elif service.status != 200:
            self._say(service.status, {"title": "broken"})
        elif parts.path == "/v1/live":
            self._stream()
        else:
            body = service.answer(parts.path, parse_qs(parts.query))
            self._say(404 if body is None else 200, body)

    def _say(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        # A connection that is kept would outlive `stop`.
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _stream(self) -> None:
        service = self.service
        if not service.has_stream:
            self._say(503, {"title": "too many listeners"})
            return
        service.resumed_from.append(self.headers.get("Last-Event-ID", ""))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.write(b'retry: 3000\n\nevent: ready\nid: 1\ndata: {"number": 1}\n\n')
            service.streams += 1
            while (piece := service.next_event()) is not None:
                self.wfile.write(piece)
        service.streams -= 1


@contextlib.contextmanager
def fake_service() -> Iterator[FakeService]:
    """A stand-in that is there, ended with the block."""
    service = FakeService()
    service.start()
    try:
        yield service
    finally:
        service.stop()
