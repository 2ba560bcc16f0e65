"""Transceivers as Debian's ethtool decodes them: an independent reader of the same bytes.

ethtool asks its netlink socket, which a shim hands to the test; the test answers from the memory of
a made-up module, and our decoder reads the same memory. Random numbers stand in every place that is
measured. Two things differ on purpose, both held against OIF-CMIS-05.2: ethtool 6.1 divides the
laser's current by the module's factor where the document multiplies, and takes flags of lanes of
CMIS modules by the lane's number where the document has a bit a lane.
"""

import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.parsing.transceiver.model import LEVELS, Module
from tests.doubles.ethtool_kernel import FakeKernel
from tests.doubles.netlink_shim import compile_shim
from tests.doubles.transceivers import Plugged, copper, qsfp28, qsfp_dd, sfp28
from tests.tools import peers
from tests.unit.collector.test_transceiver import read_module

pytestmark = pytest.mark.peer("ethtool")

SECONDS_MAX = 30
CLOSE = 0.0051
"""Half of the last digit that ethtool prints of dBm and degrees, and its rounding."""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_shim(tmp_path_factory.mktemp("shim"))


def ask(shim: Path, kernel: FakeKernel, *words: str) -> dict[str, str]:
    """What ethtool prints, by name; of several lines with one name the last."""
    program = peers.find("ethtool")
    environment = {"LD_PRELOAD": str(shim), "FAKE_NETLINK": str(kernel.path), "LC_ALL": "C"}
    done = subprocess.run(
        [str(program), *words],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    pairs = (line.partition(" : ") for line in done.stdout.splitlines() if " : " in line)
    return {re.sub(r"\s+", " ", name).strip(): value.strip() for name, _, value in pairs}


def number(text: str) -> float:
    found = re.match(r"-?[\d.]+", text)
    assert found is not None, text
    return float(found[0])


def shaken(make: Callable[[], Plugged], places: list[tuple[int, int, int]], seed: int) -> Plugged:
    """A module with random numbers at these places: page, offset, count; of I2C address 50h."""
    made, dice = make(), random.Random(seed)
    for page, offset, count in places:
        made.numbers(offset, *(dice.randrange(1, 30_000) for _ in range(count)), page=page)
    return made


LANES = {
    "qsfp_dd": (qsfp_dd, [(0, 14, 2), (2, 128, 8), (2, 176, 12), (0x11, 154, 24)]),
    "qsfp28": (
        qsfp28,
        [(0, 22, 1), (0, 26, 1), (0, 34, 12), (3, 128, 4), (3, 144, 4), (3, 176, 12)],
    ),
}
NAMES = {
    "transmit_watts": "Transmit avg optical power (Channel {})",
    "bias_amperes": "Laser tx bias current (Channel {})",
}
LIMITS = {
    "temperature": ("Module temperature", 1.0),
    "supply": ("Module voltage", 1.0),
    "bias": ("Laser bias current", 1e-3),
    "transmit_power": ("Laser output power", 1e-3),
    "receive_power": ("Laser rx power", 1e-3),
}


def check_module(module: Module, said: dict[str, str]) -> None:
    assert (module.vendor, module.part, module.serial, module.revision) == tuple(
        said[name] for name in ("Vendor name", "Vendor PN", "Vendor SN", "Vendor rev")
    )
    assert module.temperature_celsius == pytest.approx(
        number(said["Module temperature"]), abs=CLOSE
    )
    assert module.supply_volts == pytest.approx(number(said["Module voltage"]), abs=6e-5)
    for reading, (name, unit) in LIMITS.items():
        for level, value in zip(LEVELS, module.limits[reading], strict=True):
            theirs = number(said[f"{name} {level.replace('_', ' ')} threshold"])
            assert value / unit == pytest.approx(theirs, abs=CLOSE if unit == 1.0 else 6e-4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", LANES)
def test_lanes_limits_and_names_are_the_same(
    name: str, seed: int, shim: Path, tmp_path: Path
) -> None:
    plugged = shaken(*LANES[name], seed)
    with FakeKernel(tmp_path / "kernel", plugged) as kernel:
        said = ask(shim, kernel, "-m", "eth0")
    module = read_module(plugged)
    check_module(module, said)
    receive = next(text for text in said if "Rcvr signal" in text or "Receiver signal" in text)
    receive = receive.replace("Channel 1", "Channel {}")
    assert module.lanes
    for lane in module.lanes:
        for field, text in (NAMES | {"receive_watts": receive}).items():
            theirs = number(said[text.format(lane.number)]) / 1e3
            assert getattr(lane, field) == pytest.approx(theirs, abs=6e-7)


@pytest.mark.parametrize("calibrated_outside", [False, True])
def test_an_sfp_is_the_same(*, calibrated_outside: bool, shim: Path, tmp_path: Path) -> None:
    plugged = sfp28(calibrated_outside=calibrated_outside)
    with FakeKernel(tmp_path / "kernel", plugged) as kernel:
        said = ask(shim, kernel, "-m", "eth0")
    module = read_module(plugged)
    check_module(module, said)
    (lane,) = module.lanes
    for value, name in (
        (lane.receive_watts, "Receiver signal average optical power"),
        (lane.transmit_watts, "Laser output power"),
        (lane.bias_amperes, "Laser bias current"),
    ):
        assert value == pytest.approx(number(said[name]) / 1e3, abs=6e-7)
    assert said["Laser rx power low warning"] == "On"
    assert module.raised["receive_power"] == (0, 1)


@pytest.mark.parametrize("byte", [0, 0x80, 0x40, 0x20, 0x10, 0xF0])
def test_flags_of_a_qsfp_are_the_same(byte: int, shim: Path, tmp_path: Path) -> None:
    plugged = qsfp28()
    plugged.write(6, bytes([byte, byte]))
    plugged.write(9, bytes([byte | byte >> 4, byte, 0, byte >> 4, 0, 0]))
    with FakeKernel(tmp_path / "kernel", plugged) as kernel:
        said = ask(shim, kernel, "-m", "eth0")
    raised = read_module(plugged).raised
    for reading, name in (
        ("temperature", "Module temperature {}"),
        ("supply", "Module voltage {}"),
        ("receive_power", "Laser rx power {} (Channel {})"),
        ("bias", "Laser bias current {} (Chan {})"),
        ("transmit_power", "Laser tx power {} (Channel {})"),
    ):
        lanes = range(1, 5) if "Chan" in name else range(1)
        for ours, word in zip(raised[reading], ("alarm", "warning"), strict=True):
            ups = [
                any(said[name.format(f"{side} {word}", lane)] == "On" for side in ("high", "low"))
                for lane in lanes
            ]
            assert ours == sum(ups), (reading, word)


def test_copper_has_the_same_names(shim: Path, tmp_path: Path) -> None:
    with FakeKernel(tmp_path / "kernel", copper()) as kernel:
        said = ask(shim, kernel, "-m", "eth0")
    module = read_module(copper())
    assert (module.part, module.serial) == (said["Vendor PN"], said["Vendor SN"])


def test_ethtool_divides_a_factor_that_the_document_multiplies(shim: Path, tmp_path: Path) -> None:
    """If this fails, ethtool has changed: then compare all factors."""
    plugged = qsfp_dd(bias_scale=1)
    with FakeKernel(tmp_path / "kernel", plugged) as kernel:
        said = ask(shim, kernel, "-m", "eth0")
    ours = read_module(plugged).lanes[0].bias_amperes
    assert ours == pytest.approx(4 * number(said["Laser tx bias current (Channel 1)"]) / 1e3)
