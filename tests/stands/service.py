"""The service for tests: as a real process on loopback, or inside this one.

`ServiceProcess` is what a user runs (`fabricscope serve`) and can be killed. `in_process` is the
app over a real store; the engine allows one data path in a process at a time, so only one such
service may be open, and it must be closed before the next.
"""

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

import httpx
import uvicorn

from api.base import edited
from api.data.ingest import commit
from api.data.inventory.repository import Inventory
from api.data.store.store import Store, StoreUrl
from api.http.app import create_app
from api.http.connections import Connections
from api.http.context import Context, context_of
from api.http.duties import EVERYTHING, Duties
from api.http.settings import ServiceSettings
from tests.doubles import clickhouse_shards
from tests.stands.environment import clean_environment
from tests.stands.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 180
"""A start takes two seconds; on a machine that does ten other things, more."""
POLL_SECONDS = 0.02
ON_SHARDS = "FABRICSCOPE_TESTS_ON_SHARDS"
"""Set: services inside this process have a store of three shards, and all else is as it was."""


def eventually(
    condition: Callable[[], bool],
    what: str,
    seconds: float = READY_SECONDS,
    *,
    pause_seconds: float = POLL_SECONDS,
) -> None:
    """Look again and again until the condition holds, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(pause_seconds)


class ServiceProcess:
    """`fabricscope serve` on a data folder; start, kill and start again, as often as you like."""

    def __init__(
        self, data: Path, *arguments: str, port: int | None = None, inside: Sequence[str] = ()
    ) -> None:
        """``inside``: the words of a program that runs it, as `unshare`."""
        self.data = data
        self._inside = inside
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = data.parent / f"{data.name}.log"
        # One client for all: to make one costs 50 ms, as it reads the system's certificates.
        self.client = httpx.Client(base_url=self.url, timeout=60)
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill()
        self.client.close()

    @property
    def pid(self) -> int:
        """The process that runs now."""
        assert self._process is not None, "the service is not running"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process that was started still runs."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process and do not wait for it."""
        assert self._process is None, "the service is running already"
        where = ["--data", str(self.data), "--listen", f"127.0.0.1:{self.port}"]
        self._process = launch(["serve", *where, *self._arguments], self.log, self._inside)

    def start(self) -> None:
        """Start the process and return when it says that it is ready."""
        self.launch()
        eventually(self.is_ready, f"{self.url}/readyz; its log: {self.log}")

    def is_ready(self) -> bool:
        """Whether it can store and answer."""
        assert self.is_alive, f"the service ended:\n{self.log.read_text()[-4000:]}"
        with contextlib.suppress(httpx.TransportError):
            return self.client.get("/readyz").status_code == 200
        return False

    def kill(self) -> None:
        """SIGKILL: the process gets no chance to tidy up."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None, "the service is not running"
        process, self._process = self._process, None
        process.send_signal(number)
        return process.wait(READY_SECONDS)

    def samples(self, match: str, **parameters: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """What /v1/samples answers to a selector: a list of series."""
        return read_samples(self.client, match, **parameters)


def launch(words: Sequence[str], log: Path, inside: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """`fabricscope WORDS` from this checkout, writing to a log."""
    command = "import sys; from collector.cli import main; sys.exit(main(sys.argv[1:]))"
    with log.open("ab") as output:
        return subprocess.Popen(
            [*inside, sys.executable, "-c", command, *words],
            cwd=ROOT,
            env=clean_environment(),
            stdout=output,
            stderr=output,
        )


def read_samples(
    client: httpx.Client,
    match: str,
    **parameters: Any,  # noqa: ANN401 - whatever a parameter may be
) -> list[dict[str, Any]]:
    """What /v1/samples answers to a selector: a list of series."""
    answer = client.get("/v1/samples", params={"match": match, **parameters})
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


class InProcess:
    """A service inside this process: its HTTP side as a client, and its parts."""

    def __init__(self, client: httpx.Client, context: Context) -> None:
        self.client = client
        self.context = context
        self.store = context.store
        self.inventory = context.inventory

    def samples(self, match: str, **parameters: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """What /v1/samples answers to a selector: a list of series."""
        return read_samples(self.client, match, **parameters)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """What the store answers."""
        found: list[dict[str, Any]] = self.store.query(sql).to_pylist()
        return found


INVENTORY, TELEMETRY = "inventory.db", "telemetry"


@cache
def migrated() -> Path:
    """A folder with an empty inventory and an empty store, made once a process, to be copied.

    Migrations are two thirds of what a service that lives for a second costs.
    """
    folder = Path(tempfile.mkdtemp(prefix="fabricscope-migrated-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    inventory = Inventory(f"sqlite:///{folder / INVENTORY}")
    inventory.migrate()
    inventory.close()
    store = Store(StoreUrl.parse(f"chdb://{folder / TELEMETRY}"))
    store.migrate()
    store.close()
    return folder


def copy_migrated(data: Path, *, with_store: bool) -> None:
    """What is there already stays."""
    if not (data / INVENTORY).exists():
        shutil.copyfile(migrated() / INVENTORY, data / INVENTORY)
    if with_store and not (data / TELEMETRY).exists():
        shutil.copytree(migrated() / TELEMETRY, data / TELEMETRY, symlinks=True)


@contextlib.contextmanager
def in_process(
    data: Path,
    *,
    clock: Callable[[], float] = time.time,
    settings: ServiceSettings | None = None,
    store_url: str = "",
    commit_wait_seconds: float = 0.005,
    prepare: Callable[[Inventory], object] = lambda _: None,
    wired: Callable[[Context], object] = lambda _: None,
    duties: Duties = EVERYTHING,
) -> Iterator[InProcess]:
    """The app with its lifespan, on loopback, over a real store and inventory below ``data``.

    ``prepare`` fills the inventory before the service reads it: what it has read once (cables) it
    keeps for seconds. ``wired`` may change the parts before any of them runs.
    Tests send one request after the other, so a commit does not wait for other requests as long
    as the real service would; and they write a file whole before they ask about it.
    """
    cluster = contextlib.ExitStack()
    if os.environ.get(ON_SHARDS) and not store_url:
        store_url = cluster.enter_context(clickhouse_shards.server(data / "shards"))
    copy_migrated(data, with_store=not store_url)
    inventory = Inventory(f"sqlite:///{data / INVENTORY}")
    inventory.migrate()
    prepare(inventory)
    store = Store(StoreUrl.parse(store_url or f"chdb://{data / TELEMETRY}"), clock=clock)
    try:
        store.migrate()
        # What the service itself would write is no answer to what tests ask.
        quiet = ServiceSettings(data=str(data), rules_pack=False, own_numbers=False)
        app = create_app(settings or quiet, store, inventory, clock, duties)
        impatient = patch.multiple(commit, COMMIT_WAIT_SECONDS=commit_wait_seconds, COMMIT_SHARE=0)
        trusting = patch.object(edited, "SETTLED_SECONDS", 0.0)
        wired(context_of(app))
        protocol = Connections(context_of(app).metrics).protocol()
        with (
            impatient,
            trusting,
            serving(app, protocol) as url,
            httpx.Client(base_url=url, timeout=60) as client,
        ):
            yield InProcess(client, context_of(app))
    finally:
        store.close()
        inventory.close()
        cluster.close()


@contextlib.contextmanager
def serving(app: Any, protocol: Any = "auto") -> Iterator[str]:  # noqa: ANN401 - any ASGI app
    """The address of this app, served by a thread of this process."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(app, http=protocol, log_config=None, access_log=False, ws="none")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            eventually(lambda: server.started or not thread.is_alive(), "the app's start")
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(READY_SECONDS)
            assert not thread.is_alive(), "the app does not stop"
