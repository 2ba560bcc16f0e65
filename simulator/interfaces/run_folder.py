"""Where a job's files go: into the trees of its hosts, or into one folder like a real capture.

In a host's tree an agent follows them (`agent_settings` holds the paths); a run's folder is what
``fabricscope diagnose`` reads: logs and dumps of all ranks, counters of NICs and GPUs as
OpenMetrics text, and the ground truth.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from collector.contract.units import WORD_BYTES
from simulator.interfaces.columns import LOSSLESS_PRIORITY, ethtool_columns, hca_columns
from simulator.interfaces.flight_recorder import FlightRecorderDumps
from simulator.interfaces.inspector import FolderOf, InspectorLogs, append
from simulator.interfaces.machine_tree import MODEL, gpu_address, gpu_uuid
from simulator.interfaces.nccl_debug import NcclDebugLogs
from simulator.interfaces.step_marks import StepMarks
from simulator.snapshot import Counts, Snapshot
from simulator.topology.model import Floats, Topology

INSPECTOR, STEPS = "var/log/nccl", "var/log/steps"
DUMPS, DEBUG = "var/log/flight_recorder", "var/log/nccl_debug"
"""Folders of a host's tree; most have one for each job."""
SPOOL = "var/lib/fabricscope"


class Places(NamedTuple):
    """Where each kind of a job's files of a host goes."""

    inspector: FolderOf
    steps: FolderOf
    dumps: FolderOf
    debug: FolderOf


def host_places(folder: Path, topology: Topology) -> Places:
    """In each host's tree below the folder, where `agent_settings` points."""

    def root(host: int) -> Path:
        return folder / topology.host_name(host)

    return Places(
        inspector=lambda job, host: root(host) / INSPECTOR / f"nccl-inspector-{job}",
        steps=lambda _, host: root(host) / STEPS,
        dumps=lambda job, host: root(host) / DUMPS / job,
        debug=lambda job, host: root(host) / DEBUG / job,
    )


def run_places(folder: Path) -> Places:
    """All hosts' files of a kind in one folder; dumps, which name no job, in one for each job."""
    return Places(
        inspector=lambda *_: folder / "inspector",
        steps=lambda *_: folder / "steps",
        dumps=lambda job, _: folder / "flight_recorder" / job,
        debug=lambda *_: folder / "nccl_debug",
    )


class JobFiles:
    """All files that jobs themselves write."""

    def __init__(self, topology: Topology, places: Places) -> None:
        self._writers = (
            NcclDebugLogs(topology, places.debug),
            InspectorLogs(topology, places.inspector),
            StepMarks(topology, places.steps),
            FlightRecorderDumps(topology, places.dumps),
        )

    def write(self, snapshot: Snapshot) -> None:
        for writer in self._writers:
            writer.write(snapshot)


def agent_settings(host_root: Path, service_url: str = "http://127.0.0.1:9700") -> str:
    """Settings (TOML) of an agent with ``--root`` at the host's tree; without a page of its own."""
    tables: dict[str, dict[str, object]] = {
        "nccl_inspector": {"directories": [f"/{INSPECTOR}/*"]},
        "steps": {"directories": [f"/{STEPS}"], "socket": ""},
        "flight_recorder": {"directories": [f"/{DUMPS}/*"]},
        "nccl_debug": {"files": [f"/{DEBUG}/*/*.log"]},
    }
    # JSON texts and lists of texts are valid TOML.
    top = {"service_url": service_url, "spool_dir": str(host_root / SPOOL), "listen": ""}
    lines = [f"{name} = {json.dumps(value)}" for name, value in top.items()]
    for source, settings in tables.items():
        lines += ["", f"[sources.{source}]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    return "\n".join(lines) + "\n"


# Counters ----------------------------------------------------------------------------------------

PORT_METRICS = {
    "counters/port_rcv_packets": "fabric_port_receive_packets_total",
    "counters/port_xmit_packets": "fabric_port_transmit_packets_total",
    "counters/port_xmit_wait": "fabric_port_transmit_wait_ticks_total",
    "counters/port_xmit_discards": "fabric_port_transmit_discards_total",
    "counters/port_rcv_errors": "fabric_port_receive_errors_total",
    "counters/symbol_error": "fabric_port_symbol_errors_total",
    "counters/link_error_recovery": "fabric_port_link_error_recoveries_total",
    "counters/link_downed": "fabric_port_link_downed_total",
    "hw_counters/out_of_sequence": "fabric_port_receive_out_of_sequence_total",
    "hw_counters/packet_seq_err": "fabric_port_sequence_naks_total",
    "hw_counters/local_ack_timeout_err": "fabric_port_ack_timeouts_total",
    "hw_counters/rp_cnp_handled": "fabric_port_cnp_handled_total",
    "hw_counters/np_cnp_sent": "fabric_port_cnp_sent_total",
    "hw_counters/np_ecn_marked_roce_packets": "fabric_port_receive_ecn_marked_packets_total",
}
"""Catalog names of port counters; those of the other fabric are left out."""
PRIORITY_LABEL = f',priority="{LOSSLESS_PRIORITY}"'
PAUSE_METRICS = {
    f"rx_prio{LOSSLESS_PRIORITY}_pause": "fabric_nic_receive_pause_frames_total",
    f"tx_prio{LOSSLESS_PRIORITY}_pause": "fabric_nic_transmit_pause_frames_total",
}
WIRE_METRICS = {
    "link_down_events_phy": "fabric_nic_link_down_total",
    "rx_crc_errors_phy": "fabric_nic_phy_receive_crc_errors_total",
    "rx_symbol_err_phy": "fabric_nic_phy_receive_symbol_errors_total",
    "rx_corrected_bits_phy": "fabric_nic_phy_receive_corrected_bits_total",
    "rx_bits_phy": "fabric_nic_phy_receive_bits_total",
    "rx_discards_phy": "fabric_nic_phy_receive_discards_total",
}
"""Counters of the interface's driver only."""


def port_samples(snapshot: Snapshot) -> dict[str, Counts]:
    ports = hca_columns(snapshot)
    samples = {
        "fabric_port_transmit_bytes_total": ports["counters/port_xmit_data"] * WORD_BYTES,
        "fabric_port_receive_bytes_total": ports["counters/port_rcv_data"] * WORD_BYTES,
    }
    return samples | {name: ports[key] for key, name in PORT_METRICS.items() if key in ports}


def wire_samples(snapshot: Snapshot, names: Mapping[str, str]) -> dict[str, Counts]:
    """Statistics of every NIC's interface by catalog names; those that it has."""
    wire = ethtool_columns(snapshot)
    return {name: wire[key] for key, name in names.items() if key in wire}


def gpu_samples(snapshot: Snapshot, last_xid: Counts) -> dict[str, Floats]:
    """Readings of every GPU by the names of NVIDIA's exporter, in its units."""
    gpus = snapshot.gpus
    return {
        "DCGM_FI_DEV_GPU_UTIL": np.rint(100 * gpus.utilization_share),
        "DCGM_FI_DEV_SM_CLOCK": np.rint(gpus.sm_clock_mhz),
        "DCGM_FI_DEV_GPU_TEMP": np.rint(gpus.temperature_celsius),
        "DCGM_FI_DEV_MEMORY_TEMP": np.rint(gpus.memory_temperature_celsius),
        "DCGM_FI_DEV_POWER_USAGE": np.round(gpus.power_watts, 3),
        "DCGM_FI_DEV_FB_USED": (gpus.memory_used_bytes >> 20).astype(np.float64),
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": gpus.throttle_reasons.astype(np.float64),
        "DCGM_FI_DEV_XID_ERRORS": last_xid.astype(np.float64),
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": np.round(gpus.tensor_share, 4),
    }


class MetricsPage:
    """A file of OpenMetrics text that grows by one sample of each series at every tick.

    A counter that has never counted is written once and then skipped until it counts: then the tick
    before is written as well, so that the increase has the right time.
    """

    def __init__(self, path: Path, labels: Sequence[str], kind: str) -> None:
        self.path = path
        self._labels = labels
        self._kind = kind
        self._heads: dict[str, list[str]] = {}
        self._before: dict[str, Counts | Floats] = {}
        self._times: list[str] = []

    def write(self, samples: Mapping[str, Counts | Floats], times: list[str]) -> None:
        lines: list[str] = []
        for name, column in samples.items():
            if name not in self._heads:
                lines.append(f"# TYPE {name.removesuffix('_total')} {self._kind}\n")
                self._heads[name] = [f"{name}{{{labels}}} " for labels in self._labels]
            lines += self._lines(name, column, times)
        append(str(self.path), "".join(lines))
        self._times = times

    def _lines(self, name: str, column: Counts | Floats, times: list[str]) -> list[str]:
        heads, before = self._heads[name], self._before.get(name)
        self._before[name] = column
        values = [
            f"{value:.15g}" if isinstance(value, float) else str(value) for value in column.tolist()
        ]
        if before is None or self._kind != "counter":
            shown = list(range(len(values)))
            fresh: list[int] = []
        else:
            shown = np.flatnonzero((column != 0) | (before != 0)).tolist()
            fresh = np.flatnonzero((column != 0) & (before == 0)).tolist()
        lines = [f"{heads[place]}0 {self._times[place]}\n" for place in fresh]
        lines += [f"{heads[place]}{values[place]} {times[place]}\n" for place in shown]
        return lines


# The folder --------------------------------------------------------------------------------------


class RunFolder:
    """A run as a capture: `write` at every tick, `close` with the truth at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs: JobFiles | None = None
        self._pages: list[MetricsPage] = []
        self._last_xid: Counts = np.zeros(0, dtype=np.int64)

    def write(self, snapshot: Snapshot) -> None:
        topology = snapshot.topology
        if self._jobs is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._jobs = JobFiles(topology, run_places(self._folder))
            self._last_xid = np.zeros(topology.gpus, dtype=np.int64)
            nics, gpus = (self._folder / f"{name}.openmetrics" for name in ("nic", "gpu"))
            self._pages = [
                MetricsPage(nics, port_labels(topology), "counter"),
                MetricsPage(nics, wire_labels(topology), "counter"),
                MetricsPage(nics, wire_labels(topology, PRIORITY_LABEL), "counter"),
                MetricsPage(gpus, gpu_labels(topology), "gauge"),
            ]
        self._jobs.write(snapshot)
        for happening in snapshot.happenings:
            if happening.kind == "xid" and happening.gpu >= 0:
                self._last_xid[happening.gpu] = happening.value
        hosts = np.arange(topology.hosts, dtype=np.int32)
        now_ns: Counts = snapshot.host_unix_ns(hosts, snapshot.time_s)
        times = [f"{time // 1000 / 1e6:.6f}" for time in now_ns.tolist()]
        of_nics = [time for time in times for _ in range(topology.nics_per_host)]
        of_gpus = [time for time in times for _ in range(topology.gpus_per_host)]
        ports, wires, pauses, gpu_page = self._pages
        ports.write(port_samples(snapshot), of_nics)
        wires.write(wire_samples(snapshot, WIRE_METRICS), of_nics)
        pauses.write(wire_samples(snapshot, PAUSE_METRICS), of_nics)
        gpu_page.write(gpu_samples(snapshot, self._last_xid), of_gpus)

    def close(self, truth: object) -> None:
        """End the pages, and write the ground truth (anything that JSON can hold)."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in dict.fromkeys(page.path for page in self._pages):
            append(str(path), "# EOF\n")
        text = msgspec.json.format(msgspec.json.encode(truth), indent=1)
        (self._folder / "truth.json").write_bytes(text + b"\n")


def port_labels(topology: Topology) -> list[str]:
    return [
        f'host="{topology.host_name(topology.host_of_nic(nic))}",'
        f'device="{topology.device_name(nic)}",port="1"'
        for nic in range(topology.nics)
    ]


def wire_labels(topology: Topology, more: str = "") -> list[str]:
    return [
        f'host="{topology.host_name(topology.host_of_nic(nic))}",'
        f'device="{topology.interface_name(nic)}"{more}'
        for nic in range(topology.nics)
    ]


def gpu_labels(topology: Topology) -> list[str]:
    labels = []
    for gpu in range(topology.gpus):
        host, index = divmod(gpu, topology.gpus_per_host)
        labels.append(
            f'gpu="{index}",UUID="{gpu_uuid(topology, gpu)}",pci_bus_id="0000{gpu_address(index)}",'
            f'device="nvidia{index}",modelName="{MODEL}",Hostname="{topology.host_name(host)}"'
        )
    return labels
