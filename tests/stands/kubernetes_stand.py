"""A controller between two doubles, or before a real cluster, for tests.

`ServiceDouble` is what the controller needs of our service: health with tags and waiting, standing
actions, labels, and what executors report. `running` is the controller in a thread of this process,
in a hurry.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any, Self
from unittest.mock import patch
from urllib.parse import parse_qs, unquote, urlsplit

from api.remote import client, executor
from api.remote.answers import Service
from api.remote.client import AsyncClient, Target
from api.remote.kubernetes import controller as controllers
from api.remote.kubernetes import lease
from api.remote.kubernetes.access import Access
from api.remote.kubernetes.client import Cluster
from api.remote.kubernetes.controller import Controller, Mode, Options
from api.remote.kubernetes.lease import Leadership
from tests.doubles.kubernetes_double import QuietServer

Json = dict[str, Any]
SHUTDOWN_SECONDS = 0.01
LOOK_SECONDS = 0.005
TOKEN = "token-for-the-service"  # noqa: S105 - made up
LEASE = "fabricscope-controller"


def action(number: str, host: str, **parts: Any) -> Json:  # noqa: ANN401 - parts of an action
    """A standing drain, as `/v1/actions` lists it."""
    return {
        "id": number,
        "kind": "drain",
        "host": host,
        "hold": "draining",
        "state": "standing",
        "reason": "slow_link of device mlx5_0",
        "by": "policy:slow-links",
        "at": "2026-11-16T05:24:33Z",
        "until": None,
        "incident": "20261116-052433-sapak-mimog",
        "applied": [],
        **parts,
    }


class ServiceDouble:
    """Serves on loopback between `with` and its end; can be stopped and started in between."""

    def __init__(self) -> None:
        self.hosts: dict[str, Json] = {}
        self.stale: list[str] = []
        self.actions: list[Json] = []
        self.evidence: Any = "fresh"
        self.labels: dict[str, dict[str, str]] = {}
        self.applied: list[tuple[str, Json]] = []
        """Of each report the action and the body."""
        self.status: dict[str, int] = {}
        """Statuses that are answered instead, by path."""
        self.questions = 0
        self.is_up = False
        self._port = 0
        self._server: QuietServer | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Serve, on the port it had before."""
        handler = type("H", (ServiceHandler,), {"double": self})
        self._server = QuietServer(("127.0.0.1", self._port), handler)
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(SHUTDOWN_SECONDS,), daemon=True
        )
        self.is_up = True
        self._thread.start()

    def stop(self) -> None:
        """As a service that dies."""
        if self._server is not None and self._thread is not None:
            self.is_up = False
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    def put(self, host: str, state: str, *reasons: str) -> None:
        """How a host is."""
        self.hosts[host] = {"host": host, "state": state, "risk": 0.1, "reasons": list(reasons)}

    def health(self) -> bytes:
        """The answer of `/v1/health`."""
        items = sorted(self.hosts.values(), key=lambda each: str(each["host"]))
        return json.dumps({"counts": {}, "stale": self.stale, "items": items}).encode()


class ServiceHandler(BaseHTTPRequestHandler):
    """The HTTP side of a service's double."""

    double: ServiceDouble
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def answer(self, status: int, body: bytes, tag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(body)

    def serve(self) -> None:
        """One question, or report."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.double.is_up:
            self.close_connection = True
            return
        self.double.questions += 1
        parts = urlsplit(self.path)
        status = self.double.status.get(parts.path, 0)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(401, b'{"title": "no valid token"}')
        elif status:
            self.answer(status, json.dumps({"title": "told to fail"}).encode())
        elif parts.path == "/v1/health":
            self.serve_health(parse_qs(parts.query))
        elif parts.path == "/v1/actions":
            assert parse_qs(parts.query) == {"state": ["standing"]}
            found = {"actions": self.double.actions, "evidence": self.double.evidence}
            self.answer(200, json.dumps(found).encode())
        elif parts.path == "/v1/kubernetes/labels":
            found = {
                "items": [
                    {"host": host, "labels": labels} for host, labels in self.double.labels.items()
                ]
            }
            self.answer(200, json.dumps(found).encode())
        else:
            number = unquote(parts.path.split("/")[3])
            self.double.applied.append((number, json.loads(body)))
            self.answer(200, b"{}")

    def serve_health(self, asked: dict[str, list[str]]) -> None:
        """The answer when it is another than the one that is known, or after a while."""
        deadline = time.monotonic() + float(asked.get("wait", ["0"])[0])
        while True:
            body = self.double.health()
            tag = f'W/"{hash(body):x}"'
            if self.headers.get("If-None-Match") != tag:
                self.answer(200, body, tag)
                return
            if time.monotonic() >= deadline or not self.double.is_up:
                self.answer(304, b"", tag)
                return
            time.sleep(LOOK_SECONDS)


for _method in ("GET", "POST"):
    setattr(ServiceHandler, f"do_{_method}", ServiceHandler.serve)


# --- the controller -----------------------------------------------------------------------------


@contextlib.contextmanager
def in_a_hurry(kept_seconds: float = 60.0) -> Iterator[None]:
    """Waits of the controller that tests need not wait for."""
    with contextlib.ExitStack() as stack:
        for place, name, value in (
            (executor, "STEP_SECONDS_MIN", 0.005),
            (executor, "HEALTH_WAIT_SECONDS", 0.5),
            (executor, "HEALTH_KEPT_SECONDS", kept_seconds),
            (executor, "ACTIONS_SECONDS", 0.02),
            (executor, "LABELS_SECONDS", 0.02),
            (client, "RETRY_SECONDS_FIRST", 0.01),
            (client, "RETRY_SECONDS_MAX", 0.05),
            (executor, "PASS_SECONDS", 0.05),
            (executor, "PASS_PAUSE_SECONDS", 0.005),
            (controllers, "WRITES_A_SECOND_MAX", 1e4),
            (executor, "REPORT_SECONDS", 0.01),
            (lease, "RETRY_SECONDS", 0.05),
        ):
            stack.enter_context(patch.object(place, name, value))
        yield


@contextlib.asynccontextmanager
async def made(access: Access, service_url: str, options: Options, identity: str = "test") -> Any:  # noqa: ANN401 - an asynchronous iterator of a controller
    """A controller of this event loop."""
    cluster = Cluster(access)
    service = Service(AsyncClient(Target(url=service_url, token=TOKEN), "test"))
    try:
        leadership = Leadership(cluster, LEASE, identity)
        yield Controller(cluster, service, leadership, options)
    finally:
        await service.close()
        await cluster.close()


def run_once(
    access: Access,
    service_url: str,
    mode: Mode = Mode.ENFORCE,
    **options: Any,  # noqa: ANN401
) -> list[str]:
    """One pass of a controller; its output. Raises what went wrong."""
    said: list[str] = []

    async def main() -> None:
        chosen = Options(mode=mode, say=said.append, **options)
        async with made(access, service_url, chosen) as controller:
            await controller.once()

    with in_a_hurry():
        asyncio.run(main())
    return said


class Running:
    """A controller in a thread of its own."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.controller: Controller | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    async def main(self, access: Access, url: str, options: Options, identity: str) -> None:
        """Run until it is ended."""
        async with made(access, url, options, identity) as self.controller:
            assert self.controller is not None
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.create_task(self.controller.run())
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def end(self) -> None:
        """As SIGTERM does."""
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._task.cancel)

    @property
    def trouble(self) -> dict[str, str]:
        """What does not work now."""
        return dict(self.controller.trouble.now) if self.controller is not None else {}


@contextlib.contextmanager
def running(
    access: Access,
    service_url: str,
    mode: Mode = Mode.ENFORCE,
    *,
    identity: str = "test",
    kept_seconds: float = 60.0,
    **options: Any,  # noqa: ANN401
) -> Iterator[Running]:
    """A controller that runs between `with` and its end."""
    one = Running()
    chosen = Options(mode=mode, say=one.said.append, **options)
    broken: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(one.main(access, service_url, chosen, identity))
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            broken.append(error)

    with in_a_hurry(kept_seconds):
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield one
        finally:
            one.end()
            thread.join(30)
            assert not thread.is_alive(), "the controller does not stop"
            if broken:
                raise broken[0]
