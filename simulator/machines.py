"""GPUs and hosts: power, heat, clocks and CPU time of a tick's work; NVML's and /proc's numbers.

A GPU is of the H100 and H200 class. Power follows activity and the clock, temperature follows power
with the delay of a heat sink, and firmware lowers the clock when either is too high. This model
receives no flag "faulty": a fault lowers cooling or a limit, and the rest follows.

Only memory errors and the noise of CPU time are random; equal GPUs stay equal.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collector.contract.units import NS
from simulator.snapshot import Counts, GpuReadings, HostReadings
from simulator.topology.model import Bools, Floats, Ints, Topology
from simulator.topology.world import World

# --- power ---------------------------------------------------------------------------------------

IDLE_WATTS = 75.0
"""An H100 SXM that has nothing to do, its memory refreshed."""
COMPUTE_WATTS = 565.0
"""More while its tensor cores work at full clock: 640 W in all, as large training runs show."""
COMMUNICATE_WATTS = 150.0
"""More while it is inside a collective, moving bytes or waiting: a few SMs spin."""
STUCK_WATTS = 60.0
"""More of a GPU that has stopped in the middle of a kernel: clocks run, nothing switches."""
LIMIT_WATTS = 700.0
POWER_EXPONENT = 2.5
"""Of the clock: frequency times voltage squared, and voltage follows the clock in part."""

# --- clocks --------------------------------------------------------------------------------------

CLOCK_MHZ = 1980.0
CLOCK_STEP_MHZ = 15.0
IDLE_CLOCK_MHZ = 345.0
MEMORY_CLOCK_MHZ = 2619.0
CLOCK_SHARE_MIN = IDLE_CLOCK_MHZ / CLOCK_MHZ

# --- heat ----------------------------------------------------------------------------------------

INLET_CELSIUS = 25.0
KELVIN_PER_WATT = 0.065
"""Of a healthy heat sink: 640 W stand at 67 degrees, the mean of a training step at about 58."""
HEAT_SECONDS = 15.0
"""Time constant of chip and heat sink together."""
SLOWDOWN_CELSIUS = 83.0
"""Where firmware begins to lower the clock (the target temperature of such boards is 83 to 87)."""
SLOWDOWN_PER_KELVIN = 0.06
"""Share of the clock that it takes away for each degree more."""
HARDWARE_CELSIUS = 92.0
"""Where hardware steps in and halves the clock."""
HARDWARE_RELEASE_CELSIUS = 88.0
"""Where it releases the clock again."""
HARDWARE_CLOCK_SHARE = 0.5
MEMORY_ABOVE_KELVIN = 8.0
"""How much hotter memory is than the chip at the power limit; a third of that at idle."""
STEP_SECONDS = 0.5
"""Longest step of integration: short against the heat sink, also with firmware in the loop, whose
feedback makes it about ten times faster."""

# --- the rest of a GPU ---------------------------------------------------------------------------

TENSOR_OF_COMPUTE = 0.55
"""Of computing time in which tensor cores work: a good training run's, by DCGM's measure."""
CORRECTION_SECONDS = 0.5e-3
"""What a corrected memory error costs: the access is repeated and an interrupt handled. An
assumption: no vendor publishes it, and rates below ten a second make no difference."""
CORRECTION_SHARE_MAX = 0.5
MEMORY_BUSY_BYTES = 71 << 30
"""Of 80 GiB: a framework allocates most of the memory."""
MEMORY_IDLE_BYTES = 1 << 29
PCIE_GENERATION = 5
PCIE_WIDTH = 16
REPLAY_SECONDS = 5e-6
"""That an NVLink stands still for each packet that it has to send again. An assumption: no vendor
publishes it."""
LOADER_BYTES_PER_SECOND = 40e6
"""Into a GPU while it computes: its batches."""
READ_BYTES = 1 << 20
"""Of one request to the file server: the usual rsize of an NFS mount."""
WRITE_BYTES = 1 << 20
"""The same, wsize."""
MS = 1000
XID_OFF_THE_BUS = 79
XIDS_UNCORRECTABLE = (48, 94, 95)
"""Memory errors that could not be corrected."""

IDLE_BIT, POWER_BIT, HARDWARE_BIT, THERMAL_BIT, HARDWARE_THERMAL_BIT = 0x1, 0x4, 0x8, 0x20, 0x40
"""NVML's reasons why a clock is not at its highest."""

# --- hosts ---------------------------------------------------------------------------------------

CPUS = 192
MEMORY_BYTES = 2 << 40
BASE_USER_CPUS = 0.6
"""What runs on a host without a job: agents, the kernel's housekeeping."""
BASE_SYSTEM_CPUS = 0.4
USER_CPUS_PER_GPU = 3.0
"""The loop that launches kernels and spins, and loader workers."""
SYSTEM_CPUS_PER_GPU = 0.5
WAITERS_PER_GPU = 4.0
"""Processes of one rank that stall with disks or memory."""
CPU_NOISE = 0.05
"""Relative, from tick to tick."""
PRESSURE_BASE = 0.002
"""Of time in which some task waits for a CPU on any busy host."""
PRESSURE_OF_STEAL = 0.8
"""A CPU that is taken away leaves a queue behind most of the time."""
MEMORY_PRESSURE_OF_STALL = 0.6
"""A full page cache is waited for in memory reclaim, and the rest at the disk."""
MEMORY_FREE_SHARE = 0.9
MEMORY_SHARE_PER_GPU = 0.04
"""Of the host's memory that one rank and its loaders hold."""
STALL_HOLDS_SHARE = 0.85
"""Of available memory that is full of dirty pages when processes wait for it half of the time."""
STALL_WORST = 0.5
LOAD_SECONDS = 60.0
"""Time constant of the one-minute load."""
UPTIME_DAYS = (2.0, 60.0)
"""Since hosts booted, when a scenario begins."""
DAY_SECONDS = 86_400.0
US = 1_000_000


class Activity(NamedTuple):
    """Work of all GPUs and NICs in a tick, one value for each."""

    compute: Floats
    """Share of the tick."""
    communicate: Floats
    """Share of the tick, waiting inside collectives included."""
    nvlink_bytes: Floats
    transmitted: Floats
    """By each NIC, bytes a second."""
    received: Floats
    busy: Bools
    """Whether a process holds the GPU."""


class Machines:
    """All GPUs and hosts. `advance` simulates a tick; then `gpus` and `hosts` hold readings."""

    def __init__(
        self, topology: Topology, random: np.random.Generator, *, start_unix_ns: int
    ) -> None:
        self._gpus = _Gpus(topology)
        self._hosts = _Hosts(topology, random, start_unix_ns)
        self._random = random
        self._was_down: Bools = np.zeros(topology.hosts, dtype=np.bool_)
        self.rebooted: Bools = np.zeros(topology.hosts, dtype=np.bool_)
        self.gpus: GpuReadings = self._gpus.readings()
        self.hosts: HostReadings = self._hosts.readings()

    def advance(
        self,
        world: World,
        seconds: float,
        compute_share: Floats,
        communicate_share: Floats,
        nvlink_bytes: Floats,
        nic_bytes_per_second: tuple[Floats, Floats],
        busy: Bools,
    ) -> None:
        """Simulate ``seconds`` with this work done in them; sets ``world.gpu_clock_share``.

        Shares are of the tick, ``nvlink_bytes`` were moved in it, and NICs transmitted and received
        ``nic_bytes_per_second``.
        """
        self.rebooted = self._was_down & ~world.host_is_down
        self._was_down = world.host_is_down.copy()
        transmitted, received = nic_bytes_per_second
        activity = Activity(
            compute_share, communicate_share, nvlink_bytes, transmitted, received, busy
        )
        if self.rebooted.any():
            self._gpus.restart(self.rebooted[world.gpu_host])
        self._gpus.advance(world, seconds, activity, self._random)
        # Nobody has written more than the NIC has sent, however much there is to write.
        written = np.minimum(world.nic_storage_written_bytes_per_second, transmitted)
        self._hosts.advance(world, seconds, busy, self.rebooted, written)
        world.gpu_clock_share = self._gpus.speed_share
        self.gpus = self._gpus.readings()
        self.hosts = self._hosts.readings()


class _Gpus:
    """The state of all GPUs, in columns."""

    def __init__(self, topology: Topology) -> None:
        count = topology.gpus
        self._topology = topology
        self.temperature: Floats = np.full(count, INLET_CELSIUS + IDLE_WATTS * KELVIN_PER_WATT)
        self.speed_share: Floats = np.ones(count)
        """Of a healthy GPU's speed: its clock, less what corrections cost."""
        self._clock: Floats = np.ones(count)
        self._cap: Floats = np.ones(count)
        self._is_hot: Bools = np.zeros(count, dtype=np.bool_)
        self._power: Floats = np.full(count, IDLE_WATTS)
        self._limit: Floats = np.full(count, LIMIT_WATTS)
        self._utilization: Floats = np.zeros(count)
        self._compute: Floats = np.zeros(count)
        self._busy: Bools = np.zeros(count, dtype=np.bool_)
        self._is_lost: Bools = np.zeros(count, dtype=np.bool_)
        self._xid: Ints = np.zeros(count, dtype=np.int32)
        self._pcie_transmit: Floats = np.zeros(count)
        self._pcie_receive: Floats = np.zeros(count)
        self._energy: Floats = np.zeros(count)
        self._counts: dict[str, Counts] = {
            name: np.zeros(count, dtype=np.int64)
            for name in ("power", "thermal", "correctable", "uncorrectable", "nvlink", "replays")
        }

    def restart(self, gpus: Bools) -> None:
        """Set the driver's counters to zero after their host has booted."""
        self._energy[gpus] = 0.0
        for counts in self._counts.values():
            counts[gpus] = 0

    def advance(
        self, world: World, seconds: float, activity: Activity, random: np.random.Generator
    ) -> None:
        is_on = ~world.host_is_down[world.gpu_host]
        self._is_lost = world.gpu_is_dead & (world.gpu_xid == XID_OFF_THE_BUS)
        is_stuck = world.gpu_is_dead & ~self._is_lost & is_on
        works = is_on & ~world.gpu_is_dead
        self._compute = np.where(works, activity.compute, 0.0)
        communicate = np.where(works, activity.communicate, 0.0)
        self._utilization = np.where(is_stuck, 1.0, np.minimum(1.0, self._compute + communicate))
        self._busy = activity.busy & is_on & ~self._is_lost
        has_power = is_on & ~self._is_lost
        self._heat(
            world,
            seconds,
            idle_watts=np.where(has_power, IDLE_WATTS + STUCK_WATTS * is_stuck, 0.0),
            active_watts=COMPUTE_WATTS * self._compute + COMMUNICATE_WATTS * communicate,
        )
        self._count_errors(world, seconds, works, random)
        moved = np.rint(np.where(works, activity.nvlink_bytes, 0.0))
        self._counts["nvlink"] += moved.astype(np.int64)
        lost = (1.0 - world.gpu_nvlink_share) / REPLAY_SECONDS * communicate * seconds
        self._counts["replays"] += np.rint(lost).astype(np.int64)
        self._pcie_transmit = self._of_nics(activity.transmitted) * works
        loading = LOADER_BYTES_PER_SECOND * self._compute
        self._pcie_receive = self._of_nics(activity.received) * works + loading

    def _heat(
        self, world: World, seconds: float, *, idle_watts: Floats, active_watts: Floats
    ) -> None:
        """Integrate power and temperature with firmware in the loop.

        The power limit acts within milliseconds, on what the GPU draws while it computes and not on
        the mean over a step; so its clock follows from the limit alone.
        """
        self._limit = LIMIT_WATTS * world.gpu_power_limit_share
        room = np.maximum(self._limit - IDLE_WATTS, 0.0) / COMPUTE_WATTS
        self._cap = np.clip(room ** (1.0 / POWER_EXPONENT), CLOCK_SHARE_MIN, 1.0)
        resistance = KELVIN_PER_WATT / np.maximum(world.gpu_cooling_share, 1e-3)
        steps = max(1, math.ceil(seconds / STEP_SECONDS - 1e-9))
        step_s = seconds / steps
        approach = -math.expm1(-step_s / HEAT_SECONDS)
        power_sum = np.zeros(len(self._clock))
        limited = np.zeros((2, len(self._clock)))
        for _ in range(steps):
            soft = self._lower_clocks()
            power = idle_watts + active_watts * self._clock * self._clock * np.sqrt(self._clock)
            self.temperature += (INLET_CELSIUS + power * resistance - self.temperature) * approach
            power_sum += power
            limited[0] += (self._cap < 1.0) & (self._cap <= soft)
            limited[1] += soft < self._cap
        self._power = power_sum / steps
        self._energy += power_sum * step_s
        # Only GPUs that would run faster are limited.
        held_ns = np.rint(limited * (self._compute * step_s * NS)).astype(np.int64)
        self._counts["power"] += held_ns[0]
        self._counts["thermal"] += held_ns[1]

    def _lower_clocks(self) -> Floats:
        above = self.temperature - SLOWDOWN_CELSIUS
        soft = np.clip(1.0 - SLOWDOWN_PER_KELVIN * above, CLOCK_SHARE_MIN, 1.0)
        self._is_hot = (self.temperature >= HARDWARE_CELSIUS) | (
            self._is_hot & (self.temperature > HARDWARE_RELEASE_CELSIUS)
        )
        soft = np.where(self._is_hot, np.minimum(soft, HARDWARE_CLOCK_SHARE), soft)
        self._clock = np.minimum(self._cap, soft)
        return soft

    def _count_errors(
        self, world: World, seconds: float, works: Bools, random: np.random.Generator
    ) -> None:
        """Count memory errors: corrected ones by chance, others when the driver reports one."""
        rate = np.where(works, world.gpu_correctable_per_second, 0.0)
        erring = np.flatnonzero(rate)
        self._counts["correctable"][erring] += random.poisson(rate[erring] * seconds)
        reported = np.flatnonzero(world.gpu_xid != self._xid)
        is_uncorrectable = np.isin(world.gpu_xid[reported], XIDS_UNCORRECTABLE)
        self._counts["uncorrectable"][reported] += is_uncorrectable
        self._xid = world.gpu_xid.copy()
        lost_share = np.minimum(rate * CORRECTION_SECONDS, CORRECTION_SHARE_MAX)
        self.speed_share = self._clock * (1.0 - lost_share)

    def _of_nics(self, per_nic: Floats) -> Floats:
        """Assign the bytes of NICs to their nearest GPUs; GPUs that share a NIC share its bytes."""
        topology = self._topology
        gpus, nics = topology.gpus_per_host, topology.nics_per_host
        rows = per_nic.reshape(topology.hosts, nics)
        if gpus >= nics:
            nearest = np.arange(gpus) * nics // gpus
            sharers = np.bincount(nearest, minlength=nics)
            return (rows / sharers)[:, nearest].reshape(-1)
        first = np.arange(gpus) * nics // gpus
        return np.add.reduceat(rows, first, axis=1).reshape(-1)

    def _reasons(self) -> Ints:
        is_idle = self._utilization <= 0.0
        is_capped = ~is_idle & (self._cap < 1.0) & (self._clock >= self._cap)
        is_warm = ~is_idle & (self.temperature > SLOWDOWN_CELSIUS)
        hardware = HARDWARE_BIT | HARDWARE_THERMAL_BIT
        reasons: Ints = (
            IDLE_BIT * is_idle
            + POWER_BIT * is_capped
            + THERMAL_BIT * is_warm
            + hardware * (~is_idle & self._is_hot)
        ).astype(np.int32)
        return reasons

    def readings(self) -> GpuReadings:
        """As NVML would answer now; fresh columns that the next tick does not change."""
        count = len(self._clock)
        clock = np.rint(CLOCK_MHZ * self._clock / CLOCK_STEP_MHZ) * CLOCK_STEP_MHZ
        above = MEMORY_ABOVE_KELVIN / 3 * (1.0 + 2.0 * self._power / LIMIT_WATTS)
        memory = np.where(self._busy, MEMORY_BUSY_BYTES, MEMORY_IDLE_BYTES).astype(np.int64)
        nvlink = self._counts["nvlink"]
        return GpuReadings(
            utilization_share=self._utilization.copy(),
            tensor_share=self._compute * TENSOR_OF_COMPUTE,
            sm_clock_mhz=np.where(self._busy, clock, IDLE_CLOCK_MHZ),
            memory_clock_mhz=np.full(count, MEMORY_CLOCK_MHZ),
            temperature_celsius=self.temperature.copy(),
            memory_temperature_celsius=self.temperature + above,
            power_watts=self._power.copy(),
            power_limit_watts=self._limit.copy(),
            energy_joules=self._energy.copy(),
            memory_used_bytes=memory,
            throttle_reasons=self._reasons(),
            power_violation_ns=self._counts["power"].copy(),
            thermal_violation_ns=self._counts["thermal"].copy(),
            correctable_errors=self._counts["correctable"].copy(),
            uncorrectable_errors=self._counts["uncorrectable"].copy(),
            pcie_generation=np.full(count, PCIE_GENERATION, dtype=np.int32),
            pcie_width=np.full(count, PCIE_WIDTH, dtype=np.int32),
            pcie_replays=np.zeros(count, dtype=np.int64),
            nvlink_transmit_bytes=nvlink.copy(),
            nvlink_receive_bytes=nvlink.copy(),
            nvlink_replays=self._counts["replays"].copy(),
            pcie_transmit_bytes_per_second=self._pcie_transmit.copy(),
            pcie_receive_bytes_per_second=self._pcie_receive.copy(),
        )


class _Hosts:
    """The counters of all hosts, in columns."""

    def __init__(self, topology: Topology, random: np.random.Generator, start_unix_ns: int) -> None:
        hosts = topology.hosts
        self._gpus_per_host = topology.gpus_per_host
        self._random = random
        self._start_unix_ns = start_unix_ns
        self._elapsed_s = 0.0
        uptime = np.rint(random.uniform(*UPTIME_DAYS, hosts) * DAY_SECONDS)
        self._boot_ns: Counts = start_unix_ns - uptime.astype(np.int64) * NS
        # Hosts were idle so far; their counters only must not begin at zero.
        self._user: Floats = uptime * BASE_USER_CPUS
        self._system: Floats = uptime * BASE_SYSTEM_CPUS
        self._idle: Floats = uptime * (CPUS - BASE_USER_CPUS - BASE_SYSTEM_CPUS)
        self._iowait: Floats = np.zeros(hosts)
        self._steal: Floats = np.zeros(hosts)
        self._load: Floats = np.full(hosts, BASE_USER_CPUS + BASE_SYSTEM_CPUS)
        self._available: Counts = np.full(hosts, int(MEMORY_BYTES * MEMORY_FREE_SHARE))
        self._pressure: Counts = np.zeros((3, hosts), dtype=np.int64)
        self._reads: Floats = np.zeros(hosts)
        self._response_s: Floats = np.zeros(hosts)
        self._writes: Floats = np.zeros(hosts)
        self._write_response_s: Floats = np.zeros(hosts)

    def advance(
        self, world: World, seconds: float, busy: Bools, rebooted: Bools, nic_written: Floats
    ) -> None:
        """``nic_written``: bytes a second that a host wrote to its storage, by NIC."""
        self._elapsed_s += seconds
        self._restart(rebooted)
        is_on = ~world.host_is_down
        gpus = busy.reshape(-1, self._gpus_per_host).sum(axis=1) * is_on
        running = gpus * ~world.host_process_is_stopped
        steal, stall = world.host_steal_share, world.host_io_stall_share
        self._spend(seconds, running, steal, stall, is_on)
        waits = np.stack(
            [
                np.minimum(1.0, PRESSURE_BASE + PRESSURE_OF_STEAL * steal),
                stall,
                MEMORY_PRESSURE_OF_STALL * stall,
            ]
        )
        self._pressure += np.rint(waits * is_on * (seconds * US)).astype(np.int64)
        wanted = LOADER_BYTES_PER_SECOND * gpus + world.host_storage_bytes_per_second
        reads = wanted / READ_BYTES * seconds
        self._reads += reads
        self._response_s += reads * world.host_storage_seconds
        writes = nic_written.reshape(len(gpus), -1).sum(axis=1) / WRITE_BYTES * seconds
        self._writes += writes
        self._write_response_s += writes * world.host_storage_seconds
        held = STALL_HOLDS_SHARE * np.minimum(1.0, stall / STALL_WORST)
        free = np.maximum(MEMORY_FREE_SHARE - MEMORY_SHARE_PER_GPU * gpus, 0.0) * (1.0 - held)
        self._available = (MEMORY_BYTES * free).astype(np.int64)

    def _restart(self, rebooted: Bools) -> None:
        mount = (self._reads, self._response_s, self._writes, self._write_response_s)
        for column in (self._user, self._system, self._idle, self._iowait, self._steal, *mount):
            column[rebooted] = 0.0
        self._load[rebooted] = 0.0
        self._pressure[:, rebooted] = 0
        self._boot_ns[rebooted] = self._start_unix_ns + round(self._elapsed_s * NS)

    def _spend(
        self, seconds: float, gpus: Floats, steal: Floats, stall: Floats, is_on: Bools
    ) -> None:
        noise = self._random.lognormal(0.0, CPU_NOISE, len(gpus))
        wanted_user = (BASE_USER_CPUS + USER_CPUS_PER_GPU * gpus) * noise
        wanted_system = BASE_SYSTEM_CPUS + SYSTEM_CPUS_PER_GPU * gpus
        runs = (1.0 - steal) * (1.0 - stall)
        user = np.minimum(wanted_user * runs, CPUS * (1.0 - steal))
        system = np.minimum(wanted_system * runs, CPUS * (1.0 - steal) - user)
        left = np.maximum(CPUS * (1.0 - steal) - user - system, 0.0)
        waiters = stall * (1.0 + WAITERS_PER_GPU * gpus)
        iowait = np.minimum(waiters, left)
        cpu_seconds = seconds * is_on
        self._user += user * cpu_seconds
        self._system += system * cpu_seconds
        self._steal += CPUS * steal * cpu_seconds
        self._iowait += iowait * cpu_seconds
        self._idle += (left - iowait) * cpu_seconds
        # A process whose CPU is stolen still counts as running, and so does one that waits for a
        # disk.
        load = (wanted_user + wanted_system + waiters) * is_on
        self._load += (load - self._load) * -math.expm1(-seconds / LOAD_SECONDS)

    def readings(self) -> HostReadings:
        """As /proc would show now; fresh columns that the next tick does not change."""
        cpu, io, memory = self._pressure.copy()
        return HostReadings(
            cpus=CPUS,
            memory_total_bytes=MEMORY_BYTES,
            boot_unix_ns=self._boot_ns.copy(),
            cpu_user_s=self._user.copy(),
            cpu_system_s=self._system.copy(),
            cpu_idle_s=self._idle.copy(),
            cpu_iowait_s=self._iowait.copy(),
            cpu_steal_s=self._steal.copy(),
            memory_available_bytes=self._available.copy(),
            pressure_cpu_us=cpu,
            pressure_io_us=io,
            pressure_memory_us=memory,
            load_1m=self._load.copy(),
            mount_reads=self._reads.astype(np.int64),
            mount_read_bytes=self._reads.astype(np.int64) * READ_BYTES,
            mount_response_ms=(self._response_s * MS).astype(np.int64),
            mount_writes=self._writes.astype(np.int64),
            mount_written_bytes=self._writes.astype(np.int64) * WRITE_BYTES,
            mount_write_response_ms=(self._write_response_s * MS).astype(np.int64),
        )
