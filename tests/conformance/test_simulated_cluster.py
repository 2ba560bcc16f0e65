"""Every fault shows what it would show in a real cluster, where it would, and then it is over.

A fault only turns knobs. That its counters and records look right is the work of all models
together, so each runs here in a whole cluster at its worst: `SHOWS` holds what must be visible.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from collector.cli import main
from collector.contract.collective import State
from simulator.engine import Simulation
from simulator.faults import discover
from simulator.faults.model import Place
from simulator.faults.places import nic_place
from simulator.interfaces.fabric_tree import live_texts
from simulator.interfaces.time_service import ahead_s
from simulator.snapshot import CollectiveBlock, Counts, Happening
from simulator.topology.model import Fabric, LinkKind, Topology
from tests.stands.diagnosing import report_of
from tests.worlds.simulated_cluster import (
    HOSTS,
    JOB_HOSTS,
    WHEN,
    Watched,
    entry_spread,
    last_hosts,
    small_cluster,
    small_scenario,
    strike,
)

FAULTS = discover()
BEFORE_S, SETTLED_S, AFTER_S = 6.0, 8.0, 29.0
"""The last tick before the fault; from when on steps are all under it; when it is forgotten."""
HOT_S = 18.0
"""When a GPU without cooling has become too hot."""
POWER_CAP, THERMAL = 0x4, 0x20 | 0x40
"""NVML's bits for reasons of a low clock."""
NIC = 4
"""On host 2, first rail: its ring comes from NIC 2."""
BEFORE_NIC = 2


@dataclass(eq=False)
class Struck:
    """A cluster in the middle of a fault."""

    watched: Watched
    place: Place

    @property
    def topology(self) -> Topology:
        """Where it happens."""
        return self.watched.simulation.topology

    def links(self, name: str) -> Counts:
        """How much a counter of links has grown under the fault."""
        return self.watched.links(name, BEFORE_S, WHEN.look_s)

    def nics(self, name: str) -> Counts:
        """How much a counter of NICs has grown under the fault."""
        return self.watched.nics(name, BEFORE_S, WHEN.look_s)

    def hosts(self, name: str) -> np.ndarray:
        """How much a counter of hosts has grown under the fault."""
        now, before = self.watched.last.hosts, self.watched.at(BEFORE_S).hosts
        return np.asarray(getattr(now, name) - getattr(before, name))

    def happenings(self, kind: str) -> list[Happening]:
        """What happened of this kind."""
        return [one for seen in self.watched.seen for one in seen.happenings if one.kind == kind]

    def text(self, name: str) -> list[str]:
        """The content of a file below /sys of every NIC now."""
        return live_texts(self.watched.last)[name]

    def slower(self) -> float:
        """How much longer steps are than before: 1 for no longer."""
        before = self.watched.step_seconds(1.0, WHEN.begin_s)
        return self.watched.step_seconds(SETTLED_S, WHEN.look_s) / before

    def pauses(self) -> tuple[set[int], set[int]]:
        """NICs that have sent pause frames, and NICs that have received some."""
        frames, topology = self.links("pause_frames"), self.topology
        every = np.arange(topology.nics, dtype=np.int32)
        sent = set(np.flatnonzero(frames[topology.down(every)]).tolist())
        return sent, set(np.flatnonzero(frames[topology.up(every)]).tolist())

    def is_last(self, host: int, since_s: float = SETTLED_S) -> bool:
        """Whether everyone waits for this host, nearly always."""
        counts = last_hosts(self.watched, since_s, WHEN.look_s)
        return bool(counts[host] > 0.9 * counts.sum() > 10)

    def hung(self) -> CollectiveBlock:
        """The collective that the watchdogs found."""
        assert self.watched.last.jobs[0].hung_since_s is not None
        (dump,) = [dump for seen in self.watched.seen for dump in seen.dumps]
        (block,) = [block for block in dump.blocks if block.state is not State.COMPLETED]
        return block

    def only(self, counts: np.ndarray, *places: int) -> bool:
        """Whether exactly these have counted something."""
        return set(np.flatnonzero(counts).tolist()) == set(places)


# Links -------------------------------------------------------------------------------------------


def shows_bad_cable(struck: Struck) -> None:
    link = struck.place.link
    assert struck.only(struck.links("corrupted_packets"), link)
    assert struck.only(struck.links("symbol_errors"), link)
    assert struck.only(struck.nics("out_of_sequence"), NIC)
    assert struck.only(struck.nics("sequence_errors"), BEFORE_NIC)
    assert struck.only(struck.nics("retransmitted_packets"), BEFORE_NIC)


def shows_corrected_errors(struck: Struck) -> None:
    link = struck.place.link
    corrected = struck.links("corrected_bits")
    assert corrected[link] > 100 * np.delete(corrected, link).max()
    assert not struck.links("lost_packets").any()
    assert not struck.links("symbol_errors").any()


def shows_dying_optic(struck: Struck) -> None:
    """In the seconds of a scenario its eye closes by a hair, and everything is corrected."""
    link, simulation = struck.place.link, struck.watched.simulation
    healthy = Simulation(simulation.scenario).world.link_raw_ber
    grown = simulation.world.link_raw_ber > healthy
    assert struck.only(grown, link)
    assert not struck.links("lost_packets").any()
    assert not struck.links("downs").any()


def shows_link_flap(struck: Struck) -> None:
    ends = (struck.place.link, int(struck.topology.reverse[struck.place.link]))
    downs = struck.links("downs")
    assert struck.only(downs, *ends)
    assert downs[ends[0]] == downs[ends[1]] > 1
    assert {one.link for one in struck.happenings("link_up")} == set(ends)


def shows_nic_dead(struck: Struck) -> None:
    up, down = struck.place.link, int(struck.topology.reverse[struck.place.link])
    assert struck.only(struck.links("downs"), up, down)
    assert not struck.happenings("link_up")
    block = struck.hung()
    assert np.isfinite(block.entry_s).all()
    late = struck.watched.links("bytes", SETTLED_S, WHEN.look_s)
    assert not late[[up, down]].any()


def shows_nic_firmware(struck: Struck) -> None:
    up, down = struck.place.link, int(struck.topology.reverse[struck.place.link])
    assert not struck.links("downs").any()
    block = struck.hung()
    assert np.isfinite(block.entry_s).all()
    late = struck.watched.links("bytes", SETTLED_S, WHEN.look_s)
    assert not late[[up, down]].any()


def shows_rate_downgrade(struck: Struck) -> None:
    share = struck.watched.links("bits", SETTLED_S, WHEN.look_s) / (WHEN.look_s - SETTLED_S)
    ends = [struck.place.link, int(struck.topology.reverse[struck.place.link])]
    assert share[ends] == pytest.approx(struck.topology.bits_per_second[ends] / 4)
    rates = struck.text("infiniband/{device}/ports/1/rate")
    assert rates[NIC] != rates[0]
    assert len(set(rates)) == 2


def shows_spine_loss(struck: Struck) -> None:
    lost, topology = struck.links("lost_packets"), struck.topology
    at = np.flatnonzero(lost)
    touches = (topology.source_switch[at] == struck.place.switch) | (
        topology.target_switch[at] == struck.place.switch
    )
    assert touches.all()
    assert len(at) > 1
    assert not struck.links("corrupted_packets").any()
    assert not struck.links("symbol_errors").any()
    assert struck.nics("out_of_sequence").any()


# NICs --------------------------------------------------------------------------------------------


def shows_slow_receiver(struck: Struck) -> None:
    if struck.topology.fabric is Fabric.INFINIBAND:
        waits, topology = struck.links("wait_ns"), struck.topology
        assert waits[topology.down(NIC)] > 1e9, "its switch has no credit for it"
        assert waits[topology.up(BEFORE_NIC)] > 1e9, "and its sender none for the switch"
        assert waits[topology.up(NIC)] == 0
        return
    sent, received = struck.pauses()
    assert sent == {NIC}
    assert BEFORE_NIC in received
    assert NIC not in received


def shows_pcie_downtrain(struck: Struck) -> None:
    widths = struck.text("current_link_width")
    assert widths[NIC] == "2"
    assert set(widths[:NIC] + widths[NIC + 1 :]) == {"16"}
    if struck.topology.fabric is Fabric.INFINIBAND:
        shows_slow_receiver(struck)
        return
    assert struck.pauses()[0] == {NIC}
    assert struck.nics("cnp_handled")[BEFORE_NIC] > 0


def shows_slow_nic(struck: Struck) -> None:
    for name in ("pause_frames", "wait_ns", "lost_packets", "dropped_packets", "downs"):
        assert not struck.links(name).any(), name
    # Ranks behind it receive its data at its slow pace, and have long left by the clock.
    block = struck.watched.reductions(SETTLED_S, WHEN.look_s)[-1]
    (unit,) = np.flatnonzero((block.members == NIC).any(axis=1))
    column = int(np.flatnonzero(block.members[unit] == NIC)[0])
    exits = np.roll(block.exit_s[unit], -column - 1)
    assert exits.argmax() == 0, "the next in the ring leaves last"


def shows_pfc_misconfigured(struck: Struck) -> None:
    dropped = struck.links("dropped_packets")
    assert dropped[struck.topology.down(struck.place.nic)] > 1000
    assert struck.nics("out_of_sequence")[struck.place.nic] > 100
    assert struck.pauses()[0] == set()


# Neighbours --------------------------------------------------------------------------------------


def load(struck: Struck) -> float:
    """Of the struck NIC's incoming link: mean share of line rate under the fault."""
    down = struck.topology.down(struck.place.nic)
    count = struck.watched.links("bytes", SETTLED_S, WHEN.look_s)[down]
    return float(8 * count / (WHEN.look_s - SETTLED_S) / struck.topology.bits_per_second[down])


def peaks(struck: Struck) -> np.ndarray:
    """The deepest that every link's queue was under the fault."""
    depths = [one.links.queue_peak_bytes for one in struck.watched.seen if one.time_s > BEFORE_S]
    return np.asarray(np.max(depths, axis=0))


def shows_storage_neighbour(struck: Struck) -> None:
    assert load(struck) > 0.9
    if struck.topology.fabric is Fabric.ROCE:
        assert struck.nics("cnp_handled")[BEFORE_NIC] > 0, (
            "the sender receives congestion notifications"
        )
        assert struck.links("marked_packets")[struck.topology.down(NIC)] > 0
    else:
        assert struck.links("wait_ns")[struck.topology.up(BEFORE_NIC)] > 1e9


def mount_bytes(struck: Struck) -> np.ndarray:
    """Bytes a second that each host read from storage under the fault."""
    return np.asarray(struck.hosts("mount_read_bytes") / (WHEN.look_s - BEFORE_S))


def shows_storage_reads(struck: Struck) -> None:
    shows_storage_neighbour(struck)
    line = struck.topology.speed.bits_per_second / 8
    assert mount_bytes(struck)[struck.place.host] > 0.5 * line
    assert np.delete(mount_bytes(struck), struck.place.host).max() < 0.1 * line


def shows_storage_writes(struck: Struck) -> None:
    up = struck.topology.up(struck.place.nic)
    sent = struck.watched.links("bytes", SETTLED_S, WHEN.look_s)[up]
    line = struck.topology.bits_per_second[up] / 8
    assert sent / (WHEN.look_s - SETTLED_S) > 0.9 * line
    written = struck.hosts("mount_written_bytes") / (WHEN.look_s - BEFORE_S)
    assert written[struck.place.host] > 0.5 * line
    assert np.delete(written, struck.place.host).max() == 0


def shows_storage_apart(struck: Struck) -> None:
    others = np.delete(mount_bytes(struck), struck.place.host)
    assert mount_bytes(struck)[struck.place.host] > 1e9 > 5 * others.max()


def shows_incast(struck: Struck) -> None:
    assert load(struck) < 0.9
    # Without credit a burst already waits at the spine.
    assert peaks(struck).max() > 1e6
    if struck.topology.fabric is Fabric.ROCE:
        assert peaks(struck)[struck.topology.down(NIC)] > 1e6
        assert struck.links("marked_packets")[struck.topology.down(NIC)] > 0


def shows_buffer_pressure(struck: Struck) -> None:
    if struck.topology.fabric is Fabric.INFINIBAND:
        assert struck.links("wait_ns").max() > 1e9
        return
    into = struck.topology.target_switch == struck.place.switch
    assert struck.links("paused_us")[into].max() > 1e5
    assert peaks(struck)[struck.topology.down(NIC)] < 3e6


def shows_ecmp_polarised(struck: Struck) -> None:
    topology = struck.topology
    uplinks = (topology.source_switch == struck.place.switch) & (
        topology.kind == LinkKind.FABRIC_UP
    )
    used = struck.watched.links("bytes", SETTLED_S, WHEN.look_s)[uplinks]
    assert np.count_nonzero(used) == 1
    assert np.count_nonzero(struck.watched.at(BEFORE_S).links.bytes[uplinks]) > 1
    full = np.flatnonzero(uplinks)[used.argmax()]
    assert struck.links("marked_packets")[full] > 0


def shows_short_neighbour(struck: Struck) -> None:
    down = struck.topology.down(struck.place.nic)
    assert struck.watched.at(BEFORE_S).links.bytes[down] == 0
    assert load(struck) == pytest.approx(0.2, rel=0.05)


# GPUs --------------------------------------------------------------------------------------------


def shows_thermal_throttle(struck: Struck) -> None:
    gpus, gpu = struck.watched.last.gpus, struck.place.gpu
    peers = np.delete(np.arange(JOB_HOSTS * 2), gpu)
    assert gpus.temperature_celsius[gpu] > gpus.temperature_celsius[peers].max() + 10
    assert gpus.sm_clock_mhz[gpu] < gpus.sm_clock_mhz[peers].min() - 100
    assert gpus.throttle_reasons[gpu] & THERMAL
    assert not (gpus.throttle_reasons[peers] & THERMAL).any()
    assert gpus.thermal_violation_ns[gpu] > 1e9
    assert struck.is_last(struck.place.host, since_s=HOT_S)


def shows_power_throttle(struck: Struck) -> None:
    gpus, gpu = struck.watched.last.gpus, struck.place.gpu
    peers = np.delete(np.arange(JOB_HOSTS * 2), gpu)
    assert gpus.throttle_reasons[gpu] & POWER_CAP
    assert gpus.power_limit_watts[gpu] == pytest.approx(0.4 * gpus.power_limit_watts[peers[0]])
    assert gpus.sm_clock_mhz[gpu] < gpus.sm_clock_mhz[peers].min() - 100
    assert gpus.temperature_celsius[gpu] < gpus.temperature_celsius[peers].max()
    assert struck.is_last(struck.place.host)


def shows_gpu_ecc(struck: Struck) -> None:
    gpu = struck.place.gpu
    assert struck.only(struck.watched.last.gpus.correctable_errors, gpu)
    (xid,) = struck.happenings("xid")
    assert (xid.gpu, xid.value) == (gpu, 63)
    assert struck.is_last(struck.place.host)


def shows_nvlink_errors(struck: Struck) -> None:
    """What the host's GPUs exchange takes longer, no NIC is slower, and the GPU counts replays."""
    gpus, gpu = struck.watched.last.gpus, struck.place.gpu
    assert struck.only(gpus.nvlink_replays, gpu)
    assert gpus.nvlink_replays[gpu] > 1000
    for name in ("pause_frames", "wait_ns", "lost_packets", "dropped_packets", "downs"):
        assert not struck.links(name).any(), name
    inside = [
        block
        for block in struck.watched.blocks()
        if (block.members // 2 == block.members[:, :1] // 2).all()
        and SETTLED_S < block.entry_s.min() < WHEN.look_s
    ]
    assert inside
    for block in inside:
        took = block.exit_s.max(axis=1) - block.entry_s.max(axis=1)
        (unit,) = np.flatnonzero((block.members == gpu).any(axis=1))
        assert took[unit] > 5 * np.delete(took, unit).max()


def shows_gpu_death(struck: Struck) -> None:
    (xid,) = struck.happenings("xid")
    assert (xid.gpu, xid.value) == (struck.place.gpu, 79)
    assert xid.time_s == pytest.approx(WHEN.begin_s + 2.0)
    assert np.isnan(struck.hung().exit_s).all()


def shows_warm_aisle(struck: Struck) -> None:
    now, before = struck.watched.last.gpus, struck.watched.at(BEFORE_S).gpus
    busy = slice(0, JOB_HOSTS * 2)
    assert (now.temperature_celsius > before.temperature_celsius)[busy].all()
    assert not now.throttle_reasons[busy].any()


def shows_equal_power_cap(struck: Struck) -> None:
    gpus = struck.watched.last.gpus
    busy = slice(0, JOB_HOSTS * 2)
    assert (gpus.throttle_reasons[busy] & POWER_CAP).all()
    assert np.ptp(gpus.sm_clock_mhz[busy]) < 50
    assert struck.slower() > 1.02
    assert entry_spread(struck.watched, SETTLED_S, WHEN.look_s) < 1.5 * entry_spread(
        struck.watched, 1.0, WHEN.begin_s
    )


# Hosts -------------------------------------------------------------------------------------------


def shows_hang_not_launched(struck: Struck) -> None:
    block = struck.hung()
    rank_host = struck.watched.last.jobs[0].rank_host
    missing = set(block.members[np.isnan(block.entry_s)].tolist())
    assert missing == set(np.flatnonzero(rank_host == struck.place.host).tolist())


def shows_hang_not_finished(struck: Struck) -> None:
    block = struck.hung()
    assert np.isfinite(block.entry_s).all()
    assert np.isnan(block.exit_s).all()
    assert struck.place.gpu in block.members
    assert not struck.happenings("xid")


def shows_host_steal(struck: Struck) -> None:
    stolen = struck.hosts("cpu_steal_s")
    assert struck.only(stolen > 1, struck.place.host)
    assert struck.is_last(struck.place.host)


def shows_page_cache_stall(struck: Struck) -> None:
    stalled = struck.hosts("pressure_io_us")
    assert stalled[struck.place.host] > 5e6 > 5 * np.delete(stalled, struck.place.host).max()
    assert struck.is_last(struck.place.host)


def shows_slow_loader(struck: Struck) -> None:
    step = struck.watched.steps()[-1]
    waited = step.phases["data"][1] - step.phases["data"][0]
    is_there = struck.watched.last.jobs[0].rank_host == struck.place.host
    assert waited[is_there].min() > 0.5 > 5 * waited[~is_there].max()


def response_ms(struck: Struck) -> np.ndarray:
    """The file server's mean answer to a read of each host under the fault."""
    reads = np.maximum(struck.hosts("mount_reads"), 1)
    return np.asarray(struck.hosts("mount_response_ms") / reads)


def shows_slow_file_server(struck: Struck) -> None:
    busy = struck.hosts("mount_reads") > 0
    assert busy.sum() > 1
    assert response_ms(struck)[busy].min() > 50.0
    step = struck.watched.steps()[-1]
    waited = step.phases["data"][1] - step.phases["data"][0]
    assert waited.min() > 0.5
    assert struck.slower() > 1.2


def shows_slow_mount(struck: Struck) -> None:
    busy = struck.hosts("mount_reads") > 0
    busy[struck.place.host] = False
    assert response_ms(struck)[struck.place.host] > 50.0 > 5 * response_ms(struck)[busy].max()
    assert struck.is_last(struck.place.host)


# What only looks like trouble --------------------------------------------------------------------


def silent(struck: Struck) -> np.ndarray:
    """[ticks under the fault, hosts]: no batch came."""
    return np.array([~one.reporting for one in struck.watched.seen if one.time_s > WHEN.begin_s])


def shows_agent_death(struck: Struck) -> None:
    gone = silent(struck)
    assert gone[:, struck.place.host].all()
    assert np.delete(gone, struck.place.host, axis=1).sum() == 0


def shows_telemetry_loss(struck: Struck) -> None:
    gone = silent(struck)
    assert 0.5 < gone[:, struck.place.host].mean() < 1.0
    assert np.delete(gone, struck.place.host, axis=1).sum() == 0


def shows_clock_skew(struck: Struck) -> None:
    host = struck.place.host
    moved = struck.watched.last.clock_offset_s - struck.watched.at(BEFORE_S).clock_offset_s
    assert abs(moved[host]) == pytest.approx(2.0)
    assert struck.only(moved, host)
    moment = struck.watched.last.host_unix_ns(np.arange(HOSTS, dtype=np.int32), 20.0)
    assert abs(int(moment[host]) - int(np.median(moment))) > 1.9e9


def shows_clock_drift(struck: Struck) -> None:
    host = struck.place.host
    moved = struck.watched.last.clock_offset_s - struck.watched.at(BEFORE_S).clock_offset_s
    assert abs(moved[host]) == pytest.approx(500e-6 * 20, rel=0.06)
    assert struck.only(moved, host)


def shows_wrong_time_server(struck: Struck) -> None:
    """The clock is off, and its daemon sees nothing of it."""
    shows_clock_skew(struck)
    assert np.abs(ahead_s(struck.watched.last)).max() < 0.01


def shows_maintenance_flap(struck: Struck) -> None:
    ends = (struck.place.link, int(struck.topology.reverse[struck.place.link]))
    assert struck.only(struck.links("downs"), *ends)
    assert struck.place.host >= JOB_HOSTS


def shows_idle_host_reboot(struck: Struck) -> None:
    host = struck.place.host
    assert host >= JOB_HOSTS
    assert silent(struck)[:, host].all()
    watched = struck.watched
    watched.until(WHEN.look_s + 2)
    (reboot,) = struck.happenings("reboot")
    assert reboot.host == host
    shows_a_restart(struck)


def shows_counter_reset(struck: Struck) -> None:
    assert struck.place.host >= JOB_HOSTS
    assert struck.happenings("reboot")
    shows_a_restart(struck)


def shows_a_restart(struck: Struck) -> None:
    """Its host's counters restart, its switch's counters go on."""
    last, before = struck.watched.last, struck.watched.at(BEFORE_S)
    link = struck.topology.down(struck.place.nic)
    assert last.host_links.bits[link] < last.links.bits[link]
    assert last.links.bits[link] > before.links.bits[link]
    booted = last.hosts.boot_unix_ns - before.hosts.boot_unix_ns
    assert struck.only(booted, struck.place.host)


SHOWS: dict[str, Callable[[Struck], None]] = {
    name.removeprefix("shows_"): check
    for name, check in list(globals().items())
    if name.startswith("shows_") and name.removeprefix("shows_") in FAULTS
}
EVERYONE_SLOWER = {"equal_power_cap"}
"""Harmless, for no rank is late: but all are slower."""
BOTH_FABRICS = (
    "bad_cable",
    "buffer_pressure",
    "incast",
    "pcie_downtrain",
    "slow_receiver",
    "storage_neighbour",
)
"""What the fabric's own back-pressure makes of it differs."""
RUNS = [(name, Fabric.ROCE) for name in FAULTS]
RUNS += [(name, Fabric.INFINIBAND) for name in BOTH_FABRICS]


def test_it_is_said_of_every_fault_what_it_shows() -> None:
    assert set(SHOWS) == set(FAULTS)


def start(name: str, fabric: Fabric) -> Struck:
    """A cluster in which this fault is going to strike."""
    scenario = small_scenario(fabric, seconds=WHEN.over_s)
    if name == "ecmp_polarised":
        # It takes a leaf with several NICs that send up, whose hash has kept them apart so far.
        tree = small_cluster(fabric, topology="fat_tree")
        scenario = small_scenario(fabric, cluster=tree, seconds=WHEN.over_s, seed=3)
    watched = Watched.start(scenario)
    fault, cluster = FAULTS[name], watched.simulation.cluster
    place = fault.choose(cluster, np.random.default_rng(3))
    topology = cluster.topology
    if place.nic >= 0 and place.host < JOB_HOSTS:
        place = place._replace(host=NIC // 2, nic=NIC, link=topology.up(NIC))
        if place.switch >= 0:
            leaf = int(topology.source_switch[topology.down(NIC)])
            place = place._replace(switch=leaf)
    if name in {"bad_cable", "rate_downgrade", "link_flap"}:
        place = nic_place(topology, NIC)._replace(link=topology.down(NIC))
    strike(watched, fault, place, WHEN)
    return Struck(watched, place)


@pytest.mark.rotating(3)
@pytest.mark.parametrize(("name", "fabric"), RUNS)
def test_a_fault_shows_where_it_is_and_is_over_when_it_ends(name: str, fabric: Fabric) -> None:
    struck = start(name, fabric)
    watched = struck.watched
    watched.until(WHEN.look_s)
    slower = struck.slower()
    SHOWS[name](struck)
    if FAULTS[name].causes and name != "link_flap":
        assert slower > 1.05
    elif name not in EVERYONE_SLOWER | {"link_flap"}:
        assert slower < 1.02
    watched.until(WHEN.over_s)
    after = watched.step_seconds(AFTER_S, WHEN.over_s)
    assert after == pytest.approx(watched.step_seconds(1.0, WHEN.begin_s), rel=0.03)
    assert watched.last.jobs[0].hung_since_s is None


@pytest.mark.parametrize(
    "name", ["agent_death", "telemetry_loss", "clock_skew", "clock_drift", "wrong_time_server"]
)
def test_trouble_with_telling_changes_nothing_of_what_happens(name: str) -> None:
    struck = start(name, Fabric.INFINIBAND)
    healthy = Watched.start(small_scenario(seconds=WHEN.over_s))
    for watched in (struck.watched, healthy):
        watched.until(20.0)
    pairs = list(zip(struck.watched.steps(), healthy.steps(), strict=True))
    assert len(pairs) > 20
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours.end_s, theirs.end_s, atol=1e-6)
    np.testing.assert_array_equal(struck.watched.last.links.bytes, healthy.last.links.bytes)


def test_a_simulated_run_can_be_diagnosed(tmp_path: Path) -> None:
    order = ["--hosts", "4", "--gpus", "2", "--seconds", "60", "--fault", "hang_not_launched"]
    job = ["--job", "4,compute_seconds=0.3,watchdog_seconds=12"]
    assert main(["simulate", str(tmp_path / "run"), *order, *job]) == 0
    report = report_of(tmp_path / "run")
    (found,) = report.jobs
    assert (len(found.ranks), len({rank.host for rank in found.ranks})) == (8, 4)
    assert len(found.steps) > 20
    pending = [one for one in found.pending if len(one.started) + len(one.scheduled) < one.ranks]
    assert pending, "an operation that not everyone is in"
