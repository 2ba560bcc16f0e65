"""One process of the service: opens store and inventory, serves until a signal, closes both."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import clickhouse_connect.driver.client  # noqa: F401 - now, while nothing collects garbage
import uvicorn
from fastapi import FastAPI

from api.base.allocator import bound_arenas
from api.base.packages import leave_out_needless
from api.base.version import VERSION
from api.data.inventory.repository import Inventory
from api.data.store.insert_log import InsertLog
from api.data.store.store import Store, StoreUrl
from api.http.app import create_app
from api.http.connections import Connections
from api.http.context import Context, context_of
from api.http.duties import EVERYTHING, Duties
from api.http.settings import ServiceSettings
from api.http.tls import Certificate
from api.http.wiring import wire
from api.http.works import at_work
from collector.contract.errors import StoreError

if TYPE_CHECKING:
    from api.http.grpc_door import GrpcDoor

log = logging.getLogger(__name__)

CERTIFICATE_TICKS = 20
"""Every two seconds it is looked whether the certificate has changed; uvicorn ticks every 0.1 s."""

KEEP_ALIVE_SECONDS = 75
"""How long a connection may be idle: longer than agents keep theirs (60 s), so that TLS is not
redone for every batch, and than most load balancers do."""

SWITCH_SECONDS = 0.0001
"""How long a thread may keep the interpreter while others wait. Every operation on large arrays
gives it away and has to get it back, thousands of times in a round: with 0.5 ms a round of 64 hosts
waits for six seconds, with 0.1 ms for two; with less, threads do little else than switch."""

SHUTDOWN_SECONDS = 10
"""How long requests that are under way may take to end after SIGTERM."""


class Server(uvicorn.Server):
    """A server that stops on a signal and lets its caller close what is open.

    Uvicorn's own repeats the signal after its shutdown, which kills the process on the spot.
    ``end_streams`` ends endless answers: uvicorn waits for all of them before
    it notifies the app. ``certificate`` is checked for changes regularly.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        end_streams: Callable[[], None],
        certificate: Certificate | None,
        when_ready: Callable[[], None] = lambda: None,
        grpc_door: GrpcDoor | None = None,
    ) -> None:
        super().__init__(config)
        self._end_streams = end_streams
        self._certificate = certificate
        self._when_ready = when_ready
        self._grpc_door = grpc_door

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then tell those that wait for it."""
        await super().startup(sockets)
        if self.started:
            if self._grpc_door is not None:
                await self._grpc_door.open()
            self._when_ready()

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if self._certificate is not None and self.config.ssl and not counter % CERTIFICATE_TICKS:
            self._certificate.refresh(self.config.ssl)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._end_streams()
        if self._grpc_door is not None:
            await self._grpc_door.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The first signal stops gracefully, a second one at once."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield


GC_THRESHOLDS = (100_000, 50, 50)
"""Known series live for days and make no cycles. With Python's own thresholds a tenth of ingest's
time goes into looking at them again and again."""


def serve(
    settings: ServiceSettings, sockets: list[socket.socket], duties: Duties = EVERYTHING
) -> str:
    """Serve until a signal, or until vital work breaks: then returns its name."""
    tune()
    with contextlib.closing(Inventory(settings.inventory_url)) as inventory:
        inventory.migrate()
        with contextlib.closing(open_store(settings, StoreUrl.parse(settings.store_url))) as store:
            prepare_store(store)
            return serve_http(settings, store, inventory, sockets, duties)


def tune() -> None:
    """Set up allocator, collector of garbage and interpreter for a process that stays."""
    bound_arenas()
    leave_out_needless()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_SECONDS)


def open_store(
    settings: ServiceSettings, url: StoreUrl, inserts: InsertLog | None = None, sharers: int = 1
) -> Store:
    days = settings.retention_days.by_table()
    return Store(url, retention_days=days, inserts=inserts, sharers=sharers)


def prepare_store(store: Store) -> None:
    """Bring its tables up to date, for a service that stays."""
    for name in store.migrate():
        log.info("store: applied migration %s", name)
    try:
        store.prepare_to_stay()
    except StoreError as error:  # a full disk: the service can answer, and comes to it another time
        log.warning("store: the engine may keep more threads than it needs: %s", error)


def serve_http(
    settings: ServiceSettings,
    store: Store,
    inventory: Inventory,
    sockets: list[socket.socket],
    duties: Duties,
    when_ready: Callable[[], None] = lambda: None,
) -> str:
    """Serve over these, both up to date, until a signal or until vital work breaks: its name."""
    app = create_app(settings, store, inventory, time.time, duties)
    certificate = certificate_of(settings)
    config = configure(app, settings)
    log.info(
        "fabricscope %s serves on %s://%s:%d, data in %s",
        VERSION,
        "http" if certificate is None else "https",
        *settings.address,
        settings.data_path,
    )
    try:
        door = grpc_door_of(app, settings, is_shared=bool(duties.name))
        Server(config, context_of(app).end_streams, certificate, when_ready, door).run(sockets)
    finally:
        log.info("stopped; everything acknowledged is stored")
    return context_of(app).supervisor.broken


def grpc_door_of(app: FastAPI, settings: ServiceSettings, *, is_shared: bool) -> GrpcDoor | None:
    """None where OTLP comes over HTTP alone: then grpcio is not imported, which takes 20 MB."""
    if not settings.otlp_grpc_listen:
        return None
    from api.http.grpc_door import GrpcDoor  # noqa: PLC0415

    files = settings.tls_certificate, settings.tls_key
    return GrpcDoor(app, settings.otlp_grpc_listen, files, is_shared=is_shared)


def work_only(
    settings: ServiceSettings,
    store: Store,
    inventory: Inventory,
    duties: Duties,
    when_ready: Callable[[], None],
) -> str:
    """Do background work, and take no requests, until a signal or until vital work breaks."""
    context = wire(settings, store, inventory, time.time, duties)
    asyncio.run(work_until_signal(context, when_ready))
    return context.supervisor.broken


async def work_until_signal(context: Context, when_ready: Callable[[], None]) -> None:
    ends = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ends.set)
    async with at_work(context.supervisor, context.gate):
        when_ready()
        await ends.wait()


def certificate_of(settings: ServiceSettings) -> Certificate | None:
    """None without one; warns if the service listens beyond loopback without TLS."""
    if settings.tls_certificate:
        return Certificate(settings.tls_certificate, settings.tls_key)
    if not settings.is_loopback:
        log.warning(
            "no TLS on %s: tokens can be read on the way; set tls_certificate and tls_key, or put "
            "a proxy that speaks TLS before it",
            settings.reachable.rpartition(" ")[2],
        )
    return None


def configure(app: FastAPI, settings: ServiceSettings) -> uvicorn.Config:
    host, port = settings.address
    return uvicorn.Config(
        app,
        http=Connections(context_of(app).metrics).protocol(),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        # No path speaks it, and its connections would not be counted.
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
    )
