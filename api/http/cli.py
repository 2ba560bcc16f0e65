"""`fabricscope serve`: read the settings, open store and inventory, serve until a signal."""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import gc
import logging
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import clickhouse_connect.driver.client  # noqa: F401 - now, while nothing collects garbage
import msgspec
import uvicorn
from fastapi import FastAPI

from api.base.allocator import bound_arenas
from api.base.packages import leave_out_needless
from api.base.version import VERSION
from api.data.inventory.repository import Inventory
from api.data.store.store import Store, StoreUrl
from api.http.app import create_app
from api.http.connections import Connections
from api.http.context import context_of
from api.http.settings import ServiceSettings, load_service_settings
from api.http.tls import Certificate
from collector.contract.errors import SettingsError, StoreError

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

FLAGS = {
    "data": ("DIR", "folder of the embedded store and inventory"),
    "listen": ("HOST:PORT", "address to listen on"),
    "store": ("URL", "telemetry: chdb:///path or clickhouse://host:8123/database"),
    "inventory": ("URL", "inventory: sqlite:///path or postgresql+psycopg://…"),
    "token_file": ("FILE", "bearer tokens, one a line; or see fabricscope token"),
    "tls_certificate": ("FILE", "certificate chain (PEM)"),
    "tls_key": ("FILE", "its private key (PEM)"),
    "topology_file": ("FILE", "cables that no port reports (TOML or JSON)"),
    "topology_plan": ("FILE", "how it should be cabled (TOML or JSON)"),
    "policy_file": ("FILE", "which verdicts drain a host (TOML)"),
    "audit_expectations": ("FILE", "how hosts should be set up (TOML)"),
    "log_level": ("LEVEL", "debug, info, warning or error"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Each flag wins over FABRICSCOPE_<NAME>, which wins over the file."""
    defaults = ServiceSettings()
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings (TOML)")
    for name, (metavar, text) in FLAGS.items():
        default = getattr(defaults, name)
        shown = f"{text} (default {default})" if default else text
        parser.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, help=shown)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT (0), or until vital work breaks (1)."""
    flags = {name: getattr(arguments, name) for name in FLAGS}
    settings = load_service_settings(arguments.config, flags)
    set_up_logging(settings.log_level)
    # First what may fail, then what stays: an address in use must not leave a store behind.
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(one) for one in claim(*settings.address)]
        held.enter_context(prepare_data(settings.data_path))
        broken = serve(settings, sockets)
    return 1 if broken else 0


def claim(host: str, port: int) -> list[socket.socket]:
    """Sockets that hold the address: one for each that the name stands for. Nothing listens yet."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise SettingsError(f"listen: no address is called {host!r}: {error.strerror}") from error
    claimed: list[socket.socket] = []
    for family, kind, protocol, _, address in dict.fromkeys(found):
        one = socket.socket(family, kind, protocol)
        claimed.append(one)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # another socket is for IPv4
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            one.bind(address)
        except OSError as error:
            for each in claimed:
                each.close()
            raise SettingsError(f"cannot listen on {host}:{port}: {why_not(error)}") from error
    return claimed


def why_not(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the address is in use; is another fabricscope running? Set listen to another port"
    if error.errno == errno.EACCES:
        return "only root may; set listen to a port above 1023"
    return str(error.strerror)


def set_up_logging(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise SettingsError(f"log_level is {level!r}; debug, info, warning or error")
    logging.basicConfig(level=number, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("alembic", "uvicorn.error"):
        logging.getLogger(chatty).setLevel(max(number, logging.WARNING))


def prepare_data(data: Path) -> IO[Any]:
    """Make the data folder ours alone; returns the lock, to be closed at the end.

    Two services on one folder would each assume to be alone in the store. What a killed
    process left half-written in the folder for temporary files is removed.
    """
    try:
        data.mkdir(parents=True, exist_ok=True)
        lock = (data / "lock").open("w")
    except OSError as error:
        raise SettingsError(f"data folder {data}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise SettingsError(f"data folder {data} is in use by another service") from error
    scratch = data / "tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    # The driver passes blocks to the engine through files; they belong on the same disk.
    tempfile.tempdir = str(scratch)
    return lock


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
    ) -> None:
        super().__init__(config)
        self._end_streams = end_streams
        self._certificate = certificate

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if self._certificate is not None and self.config.ssl and not counter % CERTIFICATE_TICKS:
            self._certificate.refresh(self.config.ssl)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._end_streams()
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


def serve(settings: ServiceSettings, sockets: list[socket.socket]) -> str:
    """Serve until a signal, or until vital work breaks: then returns its name."""
    bound_arenas()
    leave_out_needless()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_SECONDS)
    inventory = Inventory(settings.inventory_url)
    inventory.migrate()
    retention = msgspec.structs.asdict(settings.retention_days)
    store = Store(StoreUrl.parse(settings.store_url), retention_days=retention)
    for name in store.migrate():
        log.info("store: applied migration %s", name)
    try:
        store.prepare_to_stay()
    except StoreError as error:  # a full disk: the service can answer, and comes to it another time
        log.warning("store: the engine may keep more threads than it needs: %s", error)
    try:
        app = create_app(settings, store, inventory, time.time)
        certificate = certificate_of(settings)
        config = configure(app, settings)
        log.info(
            "fabricscope %s serves on %s://%s:%d, data in %s",
            VERSION,
            "http" if certificate is None else "https",
            *settings.address,
            settings.data_path,
        )
        Server(config, context_of(app).end_streams, certificate).run(sockets)
        return context_of(app).supervisor.broken
    finally:
        store.close()
        inventory.close()
        log.info("stopped; everything acknowledged is stored")


def certificate_of(settings: ServiceSettings) -> Certificate | None:
    """None without one; warns if the service listens beyond loopback without TLS."""
    if settings.tls_certificate:
        return Certificate(settings.tls_certificate, settings.tls_key)
    if not settings.is_loopback:
        log.warning(
            "no TLS on %s: tokens can be read on the way; set tls_certificate and tls_key, or put "
            "a proxy that speaks TLS before it",
            settings.listen,
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
