"""For tests of notifying: alerts, and a server that takes notifications."""

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from alerts.rulebook.model import Alert, AlertState, Group, Rule
from collector.contract.identity import canonical_labels
from collector.contract.units import NS

GROUP = Group(
    file="links.yaml",
    name="links",
    rules=tuple(
        Rule(name=name, is_alert=True, expression=f"fabric_{name} > 0")
        for name in ("LinkDown", "Loss", "FabricIncident", "Witness")
    ),
    interval_s=15.0,
)


def make_alert(
    name: str,
    fired_s: float,
    *,
    ended_s: float | None = None,
    notes: Mapping[str, str] | None = None,
    **labels: str,
) -> Alert:
    """A critical alert that fires, or that has ended. Unix seconds."""
    return Alert(
        labels=canonical_labels({"alertname": name, "severity": "critical", **labels}),
        annotations={"summary": f"{name} of {labels}", **(notes or {})},
        value=1.0,
        state=AlertState.FIRING if ended_s is None else AlertState.INACTIVE,
        active_ns=round(fired_s * NS),
        fired_ns=round(fired_s * NS),
        resolved_ns=None if ended_s is None else round(ended_s * NS),
    )


Reply = Callable[["Call"], tuple[int, dict[str, str]]]
"""Status and headers of the answer to a call."""


class Call:
    """One request that arrived."""

    def __init__(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        self.path = path
        self.headers = dict(headers)
        self.raw = body
        self.body: Any = json.loads(body) if body else None

    @property
    def key(self) -> str:
        """The idempotency key."""
        return self.headers.get("Idempotency-Key", "")


class Listener:
    """An HTTP server on loopback that keeps each request and answers as the test sets."""

    def __init__(self, reply: Reply = lambda _: (200, {}), port: int = 0) -> None:
        self.calls: list[Call] = []
        self.reply = reply
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                call = Call(self.path, dict(self.headers.items()), body)
                outer.calls.append(call)
                status, headers = outer.reply(call)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
