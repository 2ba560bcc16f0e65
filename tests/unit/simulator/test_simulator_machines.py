"""GPUs heat up, slow down and recover; hosts count, and begin at zero when they boot."""

import numpy as np
import pytest

from collector.contract.units import NS
from simulator.faults import discover
from simulator.faults.model import Place
from simulator.machines import (
    HARDWARE_CELSIUS,
    IDLE_CLOCK_MHZ,
    IDLE_WATTS,
    INLET_CELSIUS,
    KELVIN_PER_WATT,
    LIMIT_WATTS,
    SLOWDOWN_CELSIUS,
    Machines,
)
from simulator.topology.build import ClusterSpec, build
from simulator.topology.model import Floats
from simulator.topology.world import World

START_NS = 1_800_000_000 * NS
COMPUTE, COMMUNICATE = 0.65, 0.33
"""Of a step, as in a large training run."""


class Bench:
    """A small cluster, whose GPUs all work alike by default."""

    def __init__(self, hosts: int = 4, gpus: int = 8, nics: int = 8, seed: int = 1) -> None:
        spec = ClusterSpec(topology="fat_tree", hosts=hosts, gpus_per_host=gpus, nics_per_host=nics)
        self.topology = build(spec)
        self.world = World(self.topology, np.random.default_rng(seed))
        self.machines = Machines(
            self.topology, np.random.default_rng(seed + 1), start_unix_ns=START_NS
        )
        self.compute: Floats = np.full(self.topology.gpus, COMPUTE)
        self.communicate: Floats = np.full(self.topology.gpus, COMMUNICATE)
        self.nvlink: Floats = np.zeros(self.topology.gpus)
        self.nic_bytes = (np.zeros(self.topology.nics), np.zeros(self.topology.nics))
        self.busy = np.ones(self.topology.gpus, dtype=np.bool_)

    def cool_alike(self) -> None:
        self.world.gpu_cooling_share[:] = 1.0

    def run(self, seconds: float, tick: float = 1.0) -> None:
        for _ in range(round(seconds / tick)):
            self.machines.advance(
                self.world,
                tick,
                self.compute,
                self.communicate,
                self.nvlink * tick,
                self.nic_bytes,
                self.busy,
            )


# --- heat and clocks ---------------------------------------------------------------------------


def test_the_heat_that_goes_in_comes_out() -> None:
    bench = Bench()
    bench.run(300)
    gpus = bench.machines.gpus
    expected = INLET_CELSIUS + gpus.power_watts * KELVIN_PER_WATT / bench.world.gpu_cooling_share
    assert gpus.temperature_celsius == pytest.approx(expected, abs=0.01)
    before = gpus.energy_joules
    bench.run(10)
    assert bench.machines.gpus.energy_joules - before == pytest.approx(10 * gpus.power_watts)


def test_a_healthy_busy_gpu_is_warm_and_at_its_highest_clock() -> None:
    bench = Bench(hosts=32)
    bench.run(300)
    gpus = bench.machines.gpus
    assert 55 < gpus.temperature_celsius.mean() < 62
    assert gpus.temperature_celsius.min() > 50
    assert gpus.temperature_celsius.max() < 70
    assert (gpus.throttle_reasons == 0).all()
    assert (gpus.sm_clock_mhz == 1980).all()
    assert (bench.world.gpu_clock_share == 1.0).all()
    assert (gpus.thermal_violation_ns == 0).all()
    assert (gpus.power_violation_ns == 0).all()
    assert (gpus.power_watts < LIMIT_WATTS).all()


def test_even_nothing_but_computing_needs_no_throttling() -> None:
    bench = Bench(hosts=128)
    bench.compute[:], bench.communicate[:] = 1.0, 0.0
    discover()["warm_aisle"].apply(bench.world, Place(), 1.0, 0.0)
    bench.run(200)
    assert bench.machines.gpus.temperature_celsius.max() < SLOWDOWN_CELSIUS
    assert (bench.world.gpu_clock_share == 1.0).all()


def test_an_idle_gpu_is_cool_and_says_that_it_is_idle() -> None:
    bench = Bench()
    bench.run(60)
    bench.compute[:], bench.communicate[:], bench.busy[:] = 0.0, 0.0, False
    bench.run(120)
    gpus = bench.machines.gpus
    assert gpus.power_watts == pytest.approx(IDLE_WATTS)
    assert (gpus.temperature_celsius < 32).all()
    assert (gpus.throttle_reasons == 1).all()
    assert (gpus.sm_clock_mhz == IDLE_CLOCK_MHZ).all()
    # What counts for a job that starts now is the clock that it would get.
    assert (bench.world.gpu_clock_share == 1.0).all()


@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_a_badly_cooled_gpu_slows_down_and_recovers(strength: float) -> None:
    bench = Bench()
    bench.run(60)
    discover()["thermal_throttle"].apply(bench.world, Place(gpu=3), strength, 0.0)
    # It is waited for, so it computes all the time.
    bench.compute[3], bench.communicate[3] = 0.85, 0.13
    bench.run(60)
    gpus, share = bench.machines.gpus, bench.world.gpu_clock_share
    assert 0.3 < share[3] < 0.95
    assert gpus.sm_clock_mhz[3] == pytest.approx(1980 * share[3], abs=8)
    assert gpus.throttle_reasons[3] & 0x20
    assert SLOWDOWN_CELSIUS < gpus.temperature_celsius[3] < HARDWARE_CELSIUS
    assert gpus.thermal_violation_ns[3] > 20 * NS
    others = np.arange(bench.topology.gpus) != 3
    assert (share[others] == 1.0).all()
    assert (gpus.thermal_violation_ns[others] == 0).all()
    settled = share[3]
    bench.run(60)
    assert bench.world.gpu_clock_share[3] == pytest.approx(settled, abs=0.01), "it oscillates"
    held = bench.machines.gpus.thermal_violation_ns[3]
    bench.world.reset()
    bench.run(90)
    assert bench.world.gpu_clock_share[3] == 1.0
    assert bench.machines.gpus.throttle_reasons[3] == 0
    assert bench.machines.gpus.thermal_violation_ns[3] - held < 10 * NS


def test_hardware_steps_in_where_firmware_is_too_slow() -> None:
    bench = Bench()
    bench.compute[3], bench.communicate[3] = 1.0, 0.0
    bench.world.gpu_cooling_share[3] = 0.05
    reasons = 0
    for _ in range(30):
        bench.run(1)
        reasons |= int(bench.machines.gpus.throttle_reasons[3])
    assert reasons & 0x48 == 0x48
    assert bench.world.gpu_clock_share[3] <= 0.5
    bench.world.reset()
    bench.run(90)
    assert bench.world.gpu_clock_share[3] == 1.0


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
def test_a_power_limit_is_kept_by_a_lower_clock(strength: float) -> None:
    bench = Bench()
    discover()["power_throttle"].apply(bench.world, Place(gpu=3), strength, 0.0)
    bench.compute[3], bench.communicate[3] = 1.0, 0.0
    bench.run(60)
    gpus = bench.machines.gpus
    assert gpus.power_limit_watts[3] == pytest.approx(700 * (0.9 - 0.5 * strength))
    assert gpus.power_watts[3] == pytest.approx(gpus.power_limit_watts[3], rel=0.02)
    assert bench.world.gpu_clock_share[3] < (1.0, 0.95, 0.7)[round(2 * strength)]
    assert gpus.throttle_reasons[3] == 0x4
    assert gpus.power_violation_ns[3] == pytest.approx(60 * NS, rel=0.01)
    assert gpus.thermal_violation_ns[3] == 0
    bench.world.reset()
    bench.run(1)
    assert bench.world.gpu_clock_share[3] == 1.0


def test_equal_gpus_stay_equal() -> None:
    bench = Bench()
    bench.cool_alike()
    bench.world.gpu_power_limit_share[:] = 0.8
    bench.run(120)
    gpus = bench.machines.gpus
    for column in (
        gpus.temperature_celsius,
        gpus.power_watts,
        gpus.energy_joules,
        gpus.power_violation_ns,
        bench.world.gpu_clock_share,
    ):
        assert np.ptp(column) == 0
    assert 0.9 < bench.world.gpu_clock_share[0] < 0.99


@pytest.mark.parametrize("tick", [0.1, 5.0, 10.0])
def test_longer_and_shorter_ticks_agree(tick: float) -> None:
    coarse, fine = Bench(), Bench()
    for bench, step in ((coarse, 1.0), (fine, tick)):
        bench.world.gpu_cooling_share[:4] *= 0.3
        bench.world.gpu_power_limit_share[8:12] = 0.5
        bench.nvlink[:] = 3e9
        bench.run(40, step)
    one, other = coarse.machines.gpus, fine.machines.gpus
    assert other.temperature_celsius == pytest.approx(one.temperature_celsius, rel=0.02)
    assert other.energy_joules == pytest.approx(one.energy_joules, rel=0.02)
    assert fine.world.gpu_clock_share == pytest.approx(coarse.world.gpu_clock_share, rel=0.03)
    assert other.power_violation_ns == pytest.approx(one.power_violation_ns, rel=1e-3)
    assert other.thermal_violation_ns == pytest.approx(one.thermal_violation_ns, rel=0.05)
    assert other.nvlink_transmit_bytes == pytest.approx(one.nvlink_transmit_bytes)
    mine, yours = coarse.machines.hosts, fine.machines.hosts
    assert yours.load_1m == pytest.approx(mine.load_1m, rel=0.1)
    assert yours.pressure_cpu_us == pytest.approx(mine.pressure_cpu_us)
    assert yours.cpu_system_s == pytest.approx(mine.cpu_system_s)


# --- memory errors and death -------------------------------------------------------------------


def test_corrected_errors_come_at_their_rate_and_cost_time() -> None:
    bench = Bench()
    fault = discover()["gpu_ecc"]
    fault.apply(bench.world, Place(gpu=3), 0.5, 0.0)
    rate = bench.world.gpu_correctable_per_second[3]
    bench.run(100)
    gpus = bench.machines.gpus
    assert gpus.correctable_errors[3] == pytest.approx(100 * rate, rel=0.03)
    assert gpus.correctable_errors.sum() == gpus.correctable_errors[3]
    assert 0.7 < bench.world.gpu_clock_share[3] < 0.95
    assert gpus.sm_clock_mhz[3] == 1980, "the clock itself is healthy"


def test_an_uncorrectable_error_counts_once() -> None:
    bench = Bench()
    bench.world.gpu_xid[3] = 48
    bench.run(5)
    bench.world.gpu_xid[3] = 63
    bench.run(5)
    assert bench.machines.gpus.uncorrectable_errors[3] == 1
    assert bench.machines.gpus.uncorrectable_errors.sum() == 1


def test_a_dead_gpu_looks_busy_until_the_driver_notices() -> None:
    bench = Bench()
    bench.world.gpu_is_dead[3] = True
    bench.run(30)
    gpus = bench.machines.gpus
    assert gpus.utilization_share[3] == 1.0
    assert gpus.tensor_share[3] == 0.0
    assert IDLE_WATTS < gpus.power_watts[3] < 200
    bench.world.gpu_xid[3] = 79
    bench.run(30)
    gpus = bench.machines.gpus
    assert gpus.utilization_share[3] == 0.0
    assert gpus.power_watts[3] == 0.0


# --- bytes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gpus", "nics"), [(8, 8), (8, 4), (4, 8)])
def test_what_nics_move_their_gpus_move(gpus: int, nics: int) -> None:
    bench = Bench(gpus=gpus, nics=nics)
    rates = np.arange(1.0, bench.topology.nics + 1) * 1e9
    bench.nic_bytes = (rates, 2 * rates)
    bench.compute[:] = 0.0
    bench.run(1)
    readings = bench.machines.gpus
    by_host = readings.pcie_transmit_bytes_per_second.reshape(4, gpus)
    assert by_host.sum(axis=1) == pytest.approx(rates.reshape(4, nics).sum(axis=1))
    assert readings.pcie_receive_bytes_per_second == pytest.approx(2 * by_host.reshape(-1))
    assert (np.diff(by_host, axis=1) >= 0).all()


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_a_host_writes_no_more_to_its_storage_than_its_nic_sends(share: float) -> None:
    """Behind a NIC at a quarter of its rate a checkpoint takes longer: no mount counts more."""
    bench = Bench()
    wanted = 20e9
    bench.world.nic_storage_written_bytes_per_second[17] = wanted
    bench.nic_bytes[0][17] = share * wanted
    bench.run(10)
    written = bench.machines.hosts.mount_written_bytes
    assert written[2] == pytest.approx(share * wanted * 10, rel=0.01)
    assert written[[0, 1, 3]].sum() == 0


# --- hosts -------------------------------------------------------------------------------------


def test_all_time_of_all_cpus_is_accounted_for() -> None:
    bench = Bench()
    bench.world.host_steal_share[1] = 0.4
    bench.world.host_io_stall_share[2] = 0.3
    before = bench.machines.hosts
    bench.run(50)
    after = bench.machines.hosts
    names = ("user", "system", "idle", "iowait", "steal")
    spent = {
        name: getattr(after, f"cpu_{name}_s") - getattr(before, f"cpu_{name}_s") for name in names
    }
    assert sum(spent.values()) == pytest.approx(np.full(4, 50.0 * after.cpus))
    assert spent["steal"] == pytest.approx([0.0, 0.4 * 50 * after.cpus, 0.0, 0.0])
    assert spent["iowait"][2] > 0
    assert (spent["iowait"][[0, 1, 3]] == 0).all()
    assert (spent["user"][[1, 2]] < 0.75 * spent["user"][0]).all()
    assert after.pressure_io_us[2] == pytest.approx(0.3 * 50e6)
    assert after.pressure_memory_us[2] > 0
    assert after.pressure_cpu_us[1] > 50 * after.pressure_cpu_us[0]
    assert after.memory_available_bytes[2] < 0.6 * after.memory_available_bytes[0]


def test_stopped_processes_use_no_cpu_and_hold_their_memory() -> None:
    bench = Bench()
    bench.world.host_process_is_stopped[1] = True
    before = bench.machines.hosts.cpu_user_s
    bench.run(20)
    spent = bench.machines.hosts.cpu_user_s - before
    assert spent[1] < 0.1 * spent[0]
    available = bench.machines.hosts.memory_available_bytes
    assert available[1] == available[0]


def test_a_host_that_boots_counts_from_zero() -> None:
    bench = Bench()
    bench.nvlink[:] = 1e9
    bench.world.gpu_power_limit_share[:] = 0.5
    bench.run(20)
    assert (bench.machines.hosts.boot_unix_ns < START_NS).all()
    booted_before = bench.machines.hosts.boot_unix_ns
    bench.world.host_is_down[2] = True
    bench.run(10)
    assert not bench.machines.rebooted.any()
    frozen = bench.machines.hosts.cpu_idle_s[2]
    bench.run(1)
    assert bench.machines.hosts.cpu_idle_s[2] == frozen
    bench.world.host_is_down[2] = False
    bench.run(1)
    assert bench.machines.rebooted.tolist() == [False, False, True, False]
    hosts, gpus = bench.machines.hosts, bench.machines.gpus
    assert hosts.boot_unix_ns[2] == START_NS + 32 * NS
    assert (hosts.boot_unix_ns[[0, 1, 3]] == booted_before[[0, 1, 3]]).all()
    total = hosts.cpu_user_s + hosts.cpu_system_s + hosts.cpu_idle_s
    assert total[2] == pytest.approx(hosts.cpus)
    assert total[1] > 1e6
    assert hosts.pressure_cpu_us[2] < 0.1 * hosts.pressure_cpu_us[1]
    of_host = slice(16, 24)
    assert (gpus.energy_joules[of_host] < 1e3).all()
    assert (gpus.nvlink_transmit_bytes[of_host] == 10**9).all()
    assert (gpus.power_violation_ns[of_host] < NS).all()
    assert gpus.nvlink_transmit_bytes[0] == 32 * 10**9
    bench.run(1)
    assert not bench.machines.rebooted.any()


# --- as a whole --------------------------------------------------------------------------------


def test_readings_of_a_tick_stay_as_they_were() -> None:
    bench = Bench()
    bench.nvlink[:] = 1e9
    bench.run(1)
    gpus, hosts = bench.machines.gpus, bench.machines.hosts
    copies = [value.copy() for value in vars(gpus).values()]
    idle = hosts.cpu_idle_s.copy()
    bench.run(5)
    assert all((now == copy).all() for now, copy in zip(vars(gpus).values(), copies, strict=True))
    assert (hosts.cpu_idle_s == idle).all()
    assert (bench.machines.gpus.energy_joules > gpus.energy_joules).all()


def test_the_same_seed_gives_the_same_readings() -> None:
    one, other = Bench(seed=4), Bench(seed=4)
    for bench in (one, other):
        bench.world.gpu_correctable_per_second[3] = 50.0
        bench.run(5)
    for name, column in vars(one.machines.gpus).items():
        assert (column == getattr(other.machines.gpus, name)).all(), name
    for name, column in vars(one.machines.hosts).items():
        assert np.all(column == getattr(other.machines.hosts, name)), name
