"""Runs a service of several processes: what each of them does after the fork."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prometheus_client.exposition import generate_latest

from api.base.metrics import registry_of_process
from api.base.process_limits import DRAIN_SECONDS
from api.base.unix_sockets import bind_unix
from api.data.inventory.repository import Inventory
from api.data.store.insert_log import InsertLog
from api.data.store.owner import Owner
from api.data.store.store import Store, StoreUrl
from api.http.peers import METRICS, NUMBERS, READY, Answer, answering
from api.http.processes.keeper import END_STORE, Keeper, Ready
from api.http.processes.plan import STORE, Kind, Plan, Planned, plan_of, prepare_folder
from api.http.serving import (
    certificate_of,
    open_store,
    prepare_store,
    serve_http,
    tune,
    work_only,
)
from api.http.settings import ServiceSettings
from collector.contract.errors import FabricscopeError

log = logging.getLogger(__name__)

PREPARED, UNPREPARED = 0, 1
KEEPER_LOOK_SECONDS = 1.0
"""How soon the store process sees that its keeper was killed."""
Address = tuple[int, Any]
"""A family of addresses, and an address of it."""


def run_processes(settings: ServiceSettings, sockets: list[socket.socket]) -> int:
    """Keep the processes until a signal; returns the exit status.

    ``sockets`` hold the address that workers share. The data folder is locked; so it stays as long
    as one of the processes lives.
    """
    plan = plan_of(settings)
    prepare_folder(plan.folder)
    if not in_a_process(lambda: prepare(settings, plan)):
        return UNPREPARED
    addresses: list[Address] = [(one.family, one.getsockname()) for one in sockets]
    service = Service(settings, plan, addresses)
    certificate_of(settings)  # warns, once for all
    log.info("workers: %s", ", ".join(one.name for one in plan.processes))
    return Keeper(plan.processes, service.be, plan.folder).run()


def in_a_process(work: Callable[[], None]) -> bool:
    """Do something in a process of its own; whether it ended well. The keeper opens nothing."""
    pid = os.fork()
    if not pid:
        status = UNPREPARED
        try:
            work()
            status = PREPARED
        except FabricscopeError as error:
            log.critical("the service cannot start: %s", error)
        finally:
            logging.shutdown()
            os._exit(status)
    _, ended = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(ended) == PREPARED


def prepare(settings: ServiceSettings, plan: Plan) -> None:
    """Bring the inventory up to date, and a store that is a server's; raises what is wrong."""
    with contextlib.closing(Inventory(settings.inventory_url)) as inventory:
        inventory.migrate()
    if not plan.store.socket:
        with contextlib.closing(open_store(settings, plan.store)) as store:
            prepare_store(store)


class Service:
    """What the processes have in common; `be` is the body of each."""

    def __init__(self, settings: ServiceSettings, plan: Plan, addresses: list[Address]) -> None:
        self._settings = settings
        self._plan = plan
        self._addresses = addresses
        # Before the fork: all processes have the same memory, also those that are started again.
        self._inserts = InsertLog() if plan.store.socket else None

    def be(self, planned: Planned, when_ready: Ready) -> int:
        """Run as one of the processes; returns its exit status."""
        name_log_lines(planned.name)
        tune()
        if planned.kind is Kind.STORE:
            self._own_store(when_ready)
            return 0
        return 1 if self._work(planned, when_ready) else 0

    def _work(self, planned: Planned, when_ready: Ready) -> str:
        assert planned.duties is not None
        settings = self._settings
        with (
            contextlib.closing(Inventory(settings.inventory_url)) as inventory,
            contextlib.closing(self._open_store()) as store,
            contextlib.ExitStack() as held,
        ):
            if planned.kind is Kind.EVALUATOR:
                return work_only(settings, store, inventory, planned.duties, when_ready)
            sockets = [held.enter_context(share(*each)) for each in self._addresses]
            return serve_http(settings, store, inventory, sockets, planned.duties, when_ready)

    def _open_store(self) -> Store:
        sharers = sum(one.kind is not Kind.STORE for one in self._plan.processes)
        return open_store(self._settings, self._plan.store, self._inserts, sharers)

    def _own_store(self, when_ready: Ready) -> None:
        """Open the engine, bring its tables up to date, and serve it until END_STORE."""
        ends, keeper = threading.Event(), os.getppid()
        signal.signal(END_STORE, lambda *_: ends.set())
        url = StoreUrl.parse(self._settings.store_url)
        scratch = own_scratch()
        with contextlib.closing(open_store(self._settings, url)) as store:
            prepare_store(store)
            folder = store.folder
        assert folder is not None
        registry = registry_of_process()
        answers: dict[str, Answer] = {
            READY: lambda _: b"",
            METRICS: lambda _: generate_latest(registry),
            NUMBERS: lambda _: b"[]",
        }
        with (
            Owner(folder, bind_unix(self._plan.owned_store), scratch, self._inserts) as owner,
            answering(bind_unix(self._plan.socket_of(STORE)), answers),
        ):
            thread = threading.Thread(target=owner.serve_forever, name="owner", daemon=True)
            thread.start()
            when_ready()
            # Loading the engine loses what the kernel was told to send when the keeper dies.
            while not ends.wait(KEEPER_LOOK_SECONDS) and os.getppid() == keeper:
                pass
            owner.drain(DRAIN_SECONDS)
            owner.shutdown()
            owner.engine.close()
        log.info("stopped; everything acknowledged is stored")


def own_scratch() -> Path:
    """An empty folder for rows on their way: what a killed process left there is removed."""
    scratch = Path(tempfile.gettempdir()) / STORE
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    return scratch


def share(family: int, address: Any) -> socket.socket:  # noqa: ANN401 - as `socket` has it
    """A socket of this process' own on an address that processes of the service share.

    The kernel spreads connections over all of them, by a hash of the other end's address: senders
    that keep theirs for hours stay spread, whichever process was free when they came.
    """
    one = socket.socket(family, socket.SOCK_STREAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:  # another socket is for IPv4
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    one.bind(address)
    return one


def name_log_lines(name: str) -> None:
    form = logging.Formatter(f"%(asctime)s %(levelname)s {name} %(name)s: %(message)s")
    for handler in logging.getLogger().handlers:
        handler.setFormatter(form)
