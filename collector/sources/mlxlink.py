"""Bit errors by lane, light and the FEC histogram of NVIDIA's ports, by ``mlxlink --json``.

The one way to the module of an InfiniBand port, and to errors by lane. The program belongs to MFT
(`mlxlink`) or its free half (`mstlink`), wants root and asks the firmware over PCIe for a second or
so a port: it is off unless a setting asks for it. Values are texts with units in their names; one
that is not understood is left out, and the rest is used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.contract.units import NS
from collector.doors.host import Host
from collector.reading.sysfs import list_or_nothing
from collector.sources import SourceSettings

CLASS = "sys/class/infiniband"
PREFIX = "mlx5_"
"""Devices that the program knows; others have other tools."""
PORTS_MAX = 64
LANES_MAX = 16
BINS_MAX = 32
TEXT_BYTES_MAX = 1 << 20
"""An answer has some 8 kB."""
COMPLAINT_CHARACTERS_MAX = 200
OPTIONS = ("--json", "-m", "-c", "--rx_fec_histogram", "--show_histogram")
MODULE, COUNTERS, HISTOGRAM = (
    "Module Info",
    "Physical Counters and BER Info",
    "Histogram of FEC Errors",
)
ANSWER = "fabric_port_module_info"
"""What is absent when a port gives no answer at all."""
NUMBER = re.compile(r"\s*([-+]?\d{1,20}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?)\s*(?:\[.*\])?\s*")
"""A number, and the range behind it that is usual: `62 [-10..80]`, `5E-10`."""
BIN = re.compile(r"\[?(\d{1,4})(?:\s*[-:]\s*(\d{1,4}))?\]?")


class Settings(SourceSettings, frozen=True, kw_only=True):
    """Settings of `mlxlink`."""

    enabled: bool = False
    """It wants root, and the firmware's time."""
    interval_seconds: float = 300.0
    timeout_seconds: float = 60.0
    program: str = "mlxlink"
    """Or `mstlink`, of the package mstflint."""
    port_seconds: float = 5.0
    """For one port; an answer takes about one."""
    round_seconds: float = 40.0
    """After so long no further port is asked in this round."""


class Mlxlink:
    """The source; it keeps the series of each port."""

    name: ClassVar[str] = "mlxlink"
    Settings: ClassVar[type[SourceSettings]] = Settings

    def __init__(self, settings: SourceSettings) -> None:
        assert isinstance(settings, Settings)
        self._settings = settings
        self._made: dict[tuple[str, ...], Series] = {}

    def read(self, host: Host) -> Iterator[Reading]:
        until_ns = host.monotonic_ns() + round(self._settings.round_seconds * NS)
        ports = [
            (device, port)
            for device in list_or_nothing(host, CLASS)
            if device.startswith(PREFIX)
            for port in list_or_nothing(host, f"{CLASS}/{device}/ports")
        ]
        for device, port in ports[:PORTS_MAX]:
            absent = self._series(ANSWER, device, port)
            if host.monotonic_ns() >= until_ns:
                detail = f"the round took longer than {self._settings.round_seconds:g} s"
                yield Missing(absent, UnreadReason.TIMEOUT, detail)
                continue
            try:
                output = self._ask(host, device, port)
            except HostError as error:
                yield Missing(absent, error.reason, error.detail)
                continue
            yield from self._show(output, device, port, host.now_ns())

    def _ask(self, host: Host, device: str, port: str) -> dict[str, Any]:
        """The sections of an answer; HostError where there is none."""
        words = [self._settings.program, "-d", device, "-p", port, *OPTIONS]
        output = host.run(words, self._settings.port_seconds)
        if output.is_cut:
            detail = f"no whole answer in {self._settings.port_seconds:g} s"
            raise HostError(UnreadReason.TIMEOUT, words[0], detail)
        try:
            answer = msgspec.json.decode(output.text[:TEXT_BYTES_MAX])
        except (msgspec.DecodeError, RecursionError) as error:
            said = output.complaints.decode("utf-8", "replace").strip() or str(error)
            detail = said[:COMPLAINT_CHARACTERS_MAX]
            raise HostError(UnreadReason.UNPARSEABLE, words[0], detail) from error
        status = section(answer, "status")
        if status.get("code") != 0:
            said = str(status.get("message", "it reports a failure"))[:COMPLAINT_CHARACTERS_MAX]
            raise HostError(UnreadReason.UNREADABLE, words[0], said)
        return section(section(answer, "result"), "output")

    def _show(
        self, output: dict[str, Any], device: str, port: str, time_ns: int
    ) -> Iterator[Reading]:
        found: dict[Series, float] = {}

        def add(metric: str, value: float | None, **labels: str) -> None:
            if value is not None:
                found[self._series(metric, device, port, **labels)] = value

        module, counters = section(output, MODULE), section(output, COUNTERS)
        names = {
            "vendor": "Vendor Name",
            "part": "Vendor Part Number",
            "revision": "Rev",
            "serial": "Vendor Serial Number",
            "firmware": "FW Version",
            "kind": "Identifier",
        }
        add(ANSWER, 1.0, **{label: text(module.get(name)) for label, name in names.items()})
        add("fabric_port_module_temperature_celsius", number(module.get("Temperature [C]")))
        add("fabric_port_module_supply_volts", scaled(number(module.get("Voltage [mV]")), 1e3))
        ber = number(counters.get("Effective Physical BER"))
        add("fabric_port_receive_fec_post_bit_error_ratio", ber)
        for metric, values, change in (
            ("receive_lane_bit_error_ratio", counters.get("Raw Physical BER Per Lane"), None),
            ("receive_lane_errors_total", counters.get("Raw Physical Errors Per Lane"), None),
            ("module_receive_power_watts", module.get("Rx Power Current [dBm]"), watts),
            ("module_transmit_power_watts", module.get("Tx Power Current [dBm]"), watts),
            ("module_bias_amperes", module.get("Bias Current [mA]"), milli),
        ):
            for lane, value in enumerate(lanes(values), 1):
                changed = value if change is None or value is None else change(value)
                add(f"fabric_port_{metric}", changed, lane=str(lane))
        for wrong, blocks in bins(section(output, HISTOGRAM)):
            add("fabric_port_receive_fec_blocks_total", blocks, symbol_errors=wrong)
        yield from (Sample(series, value, time_ns) for series, value in found.items())

    def _series(self, metric: str, device: str, port: str, **labels: str) -> Series:
        key = (metric, device, port, *labels.values())
        series = self._made.get(key)
        if series is None:
            if len(self._made) >= PORTS_MAX * 256:
                self._made.clear()  # modules were swapped many times
            series = self._made[key] = Series(metric, {"device": device, "port": port} | labels)
        return series


SOURCE = Mlxlink


# Values ------------------------------------------------------------------------------------------


def section(answer: object, name: str) -> dict[str, Any]:
    found = answer.get(name) if isinstance(answer, dict) else None
    return found if isinstance(found, dict) else {}


def text(value: object) -> str:
    shown = value if isinstance(value, str) else ""
    return "".join(one for one in shown[:64] if one.isprintable()).strip()


def number(value: object) -> float | None:
    """The number of a text; None for `N/A` and whatever else is none.

    >>> number("62 [-10..80]"), number("15E-255"), number("N/A")
    (62.0, 1.5e-254, None)
    """
    match = NUMBER.fullmatch(value) if isinstance(value, str) else None
    found = float(match[1]) if match else math.nan
    return found if math.isfinite(found) else None


def lanes(value: object) -> list[float | None]:
    """Numbers lane by lane, as a list or between commas.

    >>> lanes({"values": ["1E-10", "N/A"]}), lanes("3.6,3.2 [-9..7]")
    ([1e-10, None], [3.6, 3.2])
    """
    if isinstance(value, dict) and isinstance(value.get("values"), list):
        return [number(one) for one in value["values"][:LANES_MAX]]
    if isinstance(value, str):
        return [number(one) for one in value.partition("[")[0].split(",")[:LANES_MAX]]
    return []


def bins(histogram: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Wrong symbols and blocks of each bin: `"Bin 3": {"values": ["[3]", "177"]}`."""
    for name in list(histogram)[:BINS_MAX]:
        values = section(histogram, name).get("values")
        if not name.startswith("Bin ") or not isinstance(values, list) or len(values) != 2:  # noqa: PLR2004 - a range and a count
            continue
        match = BIN.fullmatch(values[0]) if isinstance(values[0], str) else None
        blocks = number(values[1])
        if match and blocks is not None:
            low, high = match[1], match[2]
            yield (low if high in {None, low} else f"{low}-{high}"), blocks


def watts(dbm: float) -> float | None:
    """From decibels over a milliwatt; none that light cannot have."""
    return 10.0 ** (dbm / 10.0) / 1e3 if abs(dbm) <= 60 else None  # noqa: PLR2004 - a kilowatt


def milli(value: float) -> float:
    return value / 1e3


def scaled(value: float | None, steps: float) -> float | None:
    return None if value is None else value / steps
