"""Which processes a service consists of, by its settings. Pure."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from api.data.store.store import StoreUrl
from api.http.duties import OF_ROLE, Duties, Role
from api.http.peers import Peers
from api.http.settings import ServiceSettings

STORE, EVALUATOR = "store", "evaluator"
RUN_FOLDER: Final = "run"
"""In the data folder: sockets of the processes, and who they are."""
STORE_SOCKET: Final = "engine.sock"


class Kind(StrEnum):
    """Kinds of processes, in the order in which they start; they end in the opposite one."""

    STORE = "store"
    EVALUATOR = "evaluator"
    WORKER = "worker"


class Planned(msgspec.Struct, frozen=True):
    """A process of the service."""

    name: str
    kind: Kind
    duties: Duties | None = None
    """None: it owns the store, and does nothing else."""


class Plan(msgspec.Struct, frozen=True):
    """The processes of a service, in the order in which they start."""

    folder: Path
    """Where their sockets are."""
    store: StoreUrl
    """Where they find the store."""
    processes: list[Planned]

    @property
    def owned_store(self) -> Path:
        return self.folder / STORE_SOCKET

    def socket_of(self, name: str) -> Path:
        return socket_in(self.folder, name)


def socket_in(folder: Path, name: str) -> Path:
    return folder / f"{name}.sock"


def plan_of(settings: ServiceSettings) -> Plan:
    """The processes of a service with workers; ``settings`` have been checked."""
    folder = settings.data_path / RUN_FOLDER
    url = StoreUrl.parse(settings.store_url)
    is_embedded = url.scheme == "chdb"
    role, count = Role(settings.role), settings.worker_count
    names = [STORE] if is_embedded else []
    names += [EVALUATOR] if role is Role.ALL else []
    workers = [f"worker-{number}" for number in range(1, count + 1)]
    sockets = {name: socket_in(folder, name) for name in (*names, *workers)}
    processes = [Planned(STORE, Kind.STORE)] if is_embedded else []
    if role is Role.ALL:
        own = duties_of(Role.EVALUATE, EVALUATOR, sockets)
        processes.append(Planned(EVALUATOR, Kind.EVALUATOR, own))
    processes += [
        Planned(name, Kind.WORKER, worker_duties(role, name, sockets, count)) for name in workers
    ]
    if is_embedded:
        url = StoreUrl.owned_elsewhere(folder / STORE_SOCKET, url)
    return Plan(folder, url, processes)


def worker_duties(role: Role, name: str, sockets: Mapping[str, Path], count: int) -> Duties:
    """Every worker takes telemetry and answers: which one a connection meets is the kernel's."""
    own = duties_of(role, name, sockets)
    is_first = name.endswith("-1")
    return msgspec.structs.replace(
        own,
        evaluates=False,
        is_watch=is_first and role is not Role.ALL,
        takers=count,
        sums_deltas=own.sums_deltas and count == 1,
    )


def duties_of(role: Role, name: str, sockets: Mapping[str, Path]) -> Duties:
    others = {other: path for other, path in sockets.items() if other != name}
    return msgspec.structs.replace(
        OF_ROLE[role], name=name, socket=sockets[name], peers=Peers(others)
    )


def prepare_folder(folder: Path) -> None:
    """An empty folder for sockets; the data folder is locked, so what is there is of the dead."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
