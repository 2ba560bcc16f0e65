"""Switches that answer SNMP: recordings for the real snmpsim, whose numbers move with the cluster.

    folder/data/leaf-0.snmprec    what leaf-0 answers to; its community is `leaf-0`
    folder/numbers                the current readings of all switches, 64 bits each
    folder/variation/             the plug-in that looks them up (`snmpsim_variation`)
    folder/cache/                 snmpsim's own index of the recordings

`responder_command` starts snmpsim on it. One process serves all switches; it is started once, and
every `Switches.update` changes its answers.

`Recordings` are for an agent without snmpsim: plain recordings of this moment, as a captured tree
(``--root``) holds them, rewritten at every update.
"""

from __future__ import annotations

import grp
import mmap
import os
import pwd
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.interfaces import snmpsim_variation
from simulator.interfaces.snmpsim_variation import BITS32
from simulator.interfaces.switch_tables import Flavour, Readings, Row, Syntax, switch_rows
from simulator.snapshot import Counts, Snapshot
from simulator.topology.model import Bools, Topology

RESPONDER = "snmpsim-command-responder"
"""The full one; its `-lite` sibling does not start with pysnmp 7."""
UNPRIVILEGED_USER = "nobody"
"""snmpsim refuses to serve as root, and this user owns nothing."""
RECORDED_AT = (0, 0)
"""Modification time of recordings. snmpsim compares whole seconds, and would index a recording
twice that is as young as its index."""
PLUGIN = "snmpsim_variation"


class Switches:
    """All switches of a cluster, in a folder that the responder serves."""

    def __init__(self, folder: Path, topology: Topology, flavour: Flavour) -> None:
        self._folder = folder
        self._topology = topology
        self._flavour = flavour
        self._readings = Readings(topology)
        self._numbers: mmap.mmap | None = None

    def start(self, snapshot: Snapshot) -> None:
        """Write the folder, replacing what was there. Call it before the responder starts."""
        data, variation, cache = (self._folder / name for name in ("data", "variation", "cache"))
        for folder in (data, variation, cache):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        if os.geteuid() == 0:
            account = pwd.getpwnam(UNPRIVILEGED_USER)
            os.chown(cache, account.pw_uid, account.pw_gid)
        shutil.copyfile(Path(snmpsim_variation.__file__), variation / f"{PLUGIN}.py")
        for number, switch in enumerate(self._topology.switches):
            rows = switch_rows(self._topology, self._readings.ports, number, self._flavour)
            recording = data / f"{switch.name}.snmprec"
            recording.write_bytes(b"".join(map(_line, rows)))
            os.utime(recording, RECORDED_AT)
        self._open()
        self.update(snapshot)

    def _open(self) -> None:
        path = self._folder / "numbers"
        path.unlink(missing_ok=True)
        path.write_bytes(bytes(self._readings.values.nbytes))
        with path.open("r+b") as file:
            self._numbers = mmap.mmap(file.fileno(), 0)

    def update(self, snapshot: Snapshot) -> None:
        """Update every switch to the snapshot: one copy into shared memory, for all of them."""
        if self._numbers is None:
            raise RuntimeError("update() needs a folder that start() has written")
        values = self._readings.update(snapshot)
        shared: Counts = np.frombuffer(self._numbers, dtype="<i8").reshape(values.shape)
        shared[:] = values

    def close(self) -> None:
        if self._numbers is not None:
            self._numbers.close()
            self._numbers = None


def _line(row: Row) -> bytes:
    """A row as recordings hold it: `1.3.6.1.2.1.1.5.0|4|leaf-0`."""
    oid = ".".join(map(str, row.oid))
    if row.slot is not None:
        return f"{oid}|{row.syntax.value}:{PLUGIN}|{row.slot}\n".encode()
    if isinstance(row.value, bytes):
        return f"{oid}|{row.syntax.value}x|{row.value.hex()}\n".encode()
    return f"{oid}|{row.syntax.value}|{row.value}\n".encode()


def responder_command(folder: Path, port: int) -> list[str]:
    """Starts snmpsim on a folder of `Switches.start`, on loopback; as root it becomes `nobody`."""
    command = [
        str(Path(sys.executable).with_name(RESPONDER)),
        f"--data-dir={folder / 'data'}",
        f"--cache-dir={folder / 'cache'}",
        f"--variation-modules-dir={folder / 'variation'}",
        f"--variation-module-options={PLUGIN}:{folder / 'numbers'}",
        f"--agent-udpv4-endpoint=127.0.0.1:{port}",
        # Without this each request costs a formatted line of log.
        "--log-level=error",
    ]
    if os.geteuid() == 0:
        account = pwd.getpwnam(UNPRIVILEGED_USER)
        group = grp.getgrgid(account.pw_gid).gr_name
        command += [f"--process-user={UNPRIVILEGED_USER}", f"--process-group={group}"]
    return command


# Without snmpsim ---------------------------------------------------------------------------------


class Page(NamedTuple):
    """One switch's recording with gaps for numbers."""

    path: Path
    text: str
    """A format with a place for each number."""
    slots: NDArray[np.intp]
    """Of the numbers, in `Readings.values` laid out flat."""
    wraps: Bools
    """Which of them wrap at 32 bits."""
    stops: Bools
    """Which of them stop at the end of 32 bits."""


class Recordings:
    """All switches of a cluster in a captured tree: ``root/snmp/<switch>.snmprec``."""

    def __init__(self, root: Path, topology: Topology, flavour: Flavour) -> None:
        self._folder = root / "snmp"
        self._readings = Readings(topology)
        self._pages = [
            self._lay_out(switch.name, switch_rows(topology, self._readings.ports, number, flavour))
            for number, switch in enumerate(topology.switches)
        ]

    def _lay_out(self, name: str, rows: list[Row]) -> Page:
        live = [row for row in rows if row.slot is not None]
        lines = (_line(row._replace(slot=None)).decode("latin-1") for row in rows)
        texts = (
            line.replace("%", "%%") if row.slot is None else f"{line.rpartition('|')[0]}|%d\n"
            for row, line in zip(rows, lines, strict=True)
        )
        kinds = np.array([row.syntax for row in live])
        return Page(
            path=self._folder / f"{name}.snmprec",
            text="".join(texts),
            slots=np.array([row.slot for row in live], dtype=np.intp),
            wraps=np.isin(kinds, [Syntax.COUNTER32, Syntax.TIMETICKS]),
            stops=kinds == Syntax.GAUGE32,
        )

    def write(self, snapshot: Snapshot) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        values = self._readings.update(snapshot).ravel()
        for page in self._pages:
            numbers = values[page.slots]
            numbers = np.where(page.wraps, numbers & BITS32, numbers)
            numbers = np.where(page.stops, np.minimum(numbers, BITS32), numbers)
            replace_file(page.path, (page.text % tuple(numbers.tolist())).encode("latin-1"))


def replace_file(path: Path, content: bytes) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(content)
    fresh.replace(path)
