"""What the kernel says of its clock (adjtimex), and a NIC's hardware clock, for `Host` alone.

Nothing here sets a clock: adjtimex is called with `modes` zero, which reads, and a hardware clock
(PHC) is only read, through the clock number that belongs to its open device
(`Documentation/driver-api/ptp.rst` of Linux 6.8, `testptp.c`).
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from typing import NamedTuple

TIMEX_BYTES = 512
"""The kernel fills 208; a longer buffer is safe wherever a `long` is longer."""
UNSYNCHRONISED = 5
"""TIME_ERROR, what adjtimex returns for a clock that nothing disciplines (man adjtimex)."""
LOOKS = 5
"""Readings of a hardware clock between two of the system's; the one that took least is used: a
read goes over PCIe and takes some microseconds."""

_RECORDED = re.compile(rb"(\w{1,20})=(-?\d{1,20})\s")
_SCALED_PPM = 1 << 16


class Timex(ctypes.Structure):
    """The beginning of `struct timex` (include/uapi/linux/timex.h); the rest is not used."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_ubyte * (TIMEX_BYTES - 48)),
    )


class KernelClock(NamedTuple):
    """How the kernel's clock is kept, as programs that discipline it have told the kernel."""

    is_synchronised: bool
    error_bound_s: float
    """`maxerror`: the kernel adds 500 ppm to what it was told last, up to 16 s."""
    frequency_ratio: float
    """By how much the clock is made faster than its quartz: 1e-6 is one ppm."""


class HardwareClock(NamedTuple):
    """A NIC's clock against this machine's."""

    ahead_ns: int
    """The hardware clock less the system's."""
    took_ns: int
    """Between the two looks at the system's clock: the answer is good to half of this."""


def read_kernel_clock() -> KernelClock:
    """OSError where the kernel does not answer (a sandbox may forbid the call)."""
    libc = ctypes.CDLL(None, use_errno=True)
    timex = Timex()
    state = int(libc.adjtimex(ctypes.byref(timex)))
    if state < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return _kernel_clock(state, timex.maxerror, timex.freq)


def parse_kernel_clock(text: bytes) -> KernelClock:
    """A recorded one: `state=0 maxerror=1500 freq=-123456`. ValueError for another text.

    >>> parse_kernel_clock(b"state=5 maxerror=16000000 freq=65536 ")
    KernelClock(is_synchronised=False, error_bound_s=16.0, frequency_ratio=1e-06)
    """
    found = {name.decode("ascii"): int(value) for name, value in _RECORDED.findall(text + b"\n")}
    try:
        return _kernel_clock(found["state"], found["maxerror"], found["freq"])
    except KeyError as error:
        raise ValueError(f"it has no {error.args[0]}") from error


def _kernel_clock(state: int, maxerror_us: int, frequency: int) -> KernelClock:
    ratio = frequency / _SCALED_PPM / 1_000_000
    return KernelClock(state != UNSYNCHRONISED, maxerror_us / 1_000_000, ratio)


def read_hardware_clock(path: str) -> HardwareClock:
    """OSError where the device cannot be opened or read."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        number = (~handle << 3) | 3
        looks = []
        for _ in range(LOOKS):
            before_ns = time.time_ns()
            there_ns = time.clock_gettime_ns(number)
            took_ns = time.time_ns() - before_ns
            looks.append(HardwareClock(there_ns - before_ns - took_ns // 2, took_ns))
    finally:
        os.close(handle)
    return min(looks, key=lambda one: (one.took_ns < 0, one.took_ns))


def parse_hardware_clock(text: bytes) -> HardwareClock:
    """A recorded one: `ahead=37000000123 took=2400`. ValueError for another text."""
    found = {name.decode("ascii"): int(value) for name, value in _RECORDED.findall(text + b"\n")}
    try:
        return HardwareClock(found["ahead"], found["took"])
    except KeyError as error:
        raise ValueError(f"it has no {error.args[0]}") from error
