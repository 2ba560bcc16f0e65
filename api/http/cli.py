"""`fabricscope serve`: read the settings, open store and inventory, serve until a signal."""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import logging
import shutil
import socket
import tempfile
from pathlib import Path
from typing import IO, Any

from api.data.store.store import StoreUrl
from api.http.duties import OF_ROLE, Role
from api.http.processes.run import run_processes
from api.http.serving import serve
from api.http.settings import ServiceSettings, load_service_settings
from api.http.tokens.cli import inventory_file
from api.http.tokens.parts import no_token
from collector.contract.errors import SettingsError

RESTORING = "restoring"
"""A file in a data folder into which a backup is being restored."""

FLAGS = {
    "data": ("DIR", "folder of the embedded store and inventory"),
    "listen": ("HOST:PORT", "address to listen on"),
    "store": ("URL", "telemetry: chdb:///path or clickhouse://host:8123/database"),
    "inventory": ("URL", "inventory: sqlite:///path or postgresql+psycopg://…"),
    "role": ("ROLE", "all, ingest, query or evaluate"),
    "workers": ("N", "processes that take requests, or auto; 0: one process does it all"),
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
    """Serve until SIGTERM or SIGINT (0), or until vital work or a process breaks (another)."""
    flags = {name: getattr(arguments, name) for name in FLAGS}
    settings = load_service_settings(arguments.config, flags)
    set_up_logging(settings.log_level)
    check_first_start(settings)
    # First what may fail, then what stays: an address in use must not leave a store behind.
    with contextlib.ExitStack() as held:
        workers = settings.worker_count
        sockets = [held.enter_context(one) for one in claim(*settings.address, shared=workers > 0)]
        if settings.otlp_grpc_listen:  # grpcio binds it later: what is taken is said now
            for one in claim(*settings.grpc_address):
                one.close()
        held.enter_context(prepare_data(settings.data_path))
        if workers:
            return run_processes(settings, sockets)
        broken = serve(settings, sockets, OF_ROLE[Role(settings.role)])
    return 1 if broken else 0


def check_first_start(settings: ServiceSettings) -> None:
    """SettingsError for what would fail once a folder is made: no store's address, no token."""
    StoreUrl.parse(settings.store_url)
    file = inventory_file(settings.inventory_url)
    is_new = file is not None and not file.exists()
    if is_new and settings.token_need and not settings.token_file:
        raise no_token(settings.token_need)


def claim(host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """Sockets that hold the address: one for each that the name stands for. Nothing listens yet.

    ``shared``: processes of this service may bind it again.
    """
    if shared:  # the kernel would let us share it with any service of this user: look first
        for one in claim(host, port):
            one.close()
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise SettingsError(f"listen: no address is called {host!r}: {error.strerror}") from error
    claimed: list[socket.socket] = []
    for family, kind, protocol, _, address in dict.fromkeys(found):
        one = socket.socket(family, kind, protocol)
        claimed.append(one)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
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
    if error.errno == errno.EADDRNOTAVAIL:
        return "no interface of this machine has the address; 0.0.0.0 listens on all of them"
    return str(error.strerror)


def set_up_logging(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise SettingsError(f"log_level is {level!r}; debug, info, warning or error")
    logging.basicConfig(level=number, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("alembic", "uvicorn.error"):
        logging.getLogger(chatty).setLevel(max(number, logging.WARNING))
    for repeated in ("urllib3", "clickhouse_connect"):  # what fails is logged where it is done
        logging.getLogger(repeated).setLevel(max(number, logging.ERROR))


def prepare_data(data: Path) -> IO[Any]:
    """Make the data folder ours alone; returns the lock, to be closed at the end.

    Two services on one folder would each assume to be alone in the store. What a killed
    process left half-written in the folder for temporary files is removed.
    """
    try:
        data.mkdir(parents=True, exist_ok=True)
        lock = (data / "lock").open("w")
    except (FileExistsError, NotADirectoryError) as error:
        raise SettingsError(f"data folder {data}: a file stands there; name a folder") from error
    except OSError as error:
        raise SettingsError(f"data folder {data}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise SettingsError(f"data folder {data} is in use by another service") from error
    if (data / RESTORING).exists():
        lock.close()
        raise SettingsError(
            f"data folder {data}: a restore into it did not end; empty the folder and restore again"
        )
    scratch = data / "tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    # The driver passes blocks to the engine through files; they belong on the same disk.
    tempfile.tempdir = str(scratch)
    return lock
