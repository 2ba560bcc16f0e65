"""Light, noise and errors of optical links, and a bench of ports that ages them hour by hour.

A receiver's noise is constant, so the distance of the signal's levels in units of noise (Q) goes
with the light that arrives, and the bit error rate is the tail of a normal distribution beyond Q.
Half a decibel less light is a decade more errors; correction hides them all until it fails within a
factor of two (`simulator.network.losses`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.network.losses import CODEWORD_SYMBOLS, SYMBOL_BITS, codeword_failures
from simulator.topology.model import Bools, Floats

RECEIVE_POWER_MILLIWATTS = 0.8
"""At a module of good health (NOMINAL_BER): -1 dBm, the middle of what 100 Gb/s lanes receive."""
NOMINAL_BER = 1e-9
BER_RANGE = (1e-18, 0.4)
"""Outside of it the inverse below is undefined: better than any link, or no signal at all."""

_tail = np.frompyfunc(lambda q: 0.5 * math.erfc(q / math.sqrt(2.0)), 1, 1)


def tail_distance(probability: Floats) -> Floats:
    """Q: standard deviations out to this tail (Abramowitz and Stegun 26.2.23, right to 5e-4)."""
    t = np.sqrt(-2.0 * np.log(np.clip(probability, *BER_RANGE)))
    above = 2.515517 + t * (0.802853 + t * 0.010328)
    below = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))
    distance: Floats = t - above / below
    return distance


def error_rate(distance: Floats) -> Floats:
    """The bit error rate at this Q: the inverse of `tail_distance`."""
    rate: Floats = np.asarray(_tail(distance), dtype=np.float64)
    return rate


def received_milliwatts(bit_error_rate: Floats) -> Floats:
    """The optical power at which a receiver makes that many errors."""
    nominal = tail_distance(np.array([NOMINAL_BER]))
    power: Floats = RECEIVE_POWER_MILLIWATTS * tail_distance(bit_error_rate) / nominal
    return power


def closing_eye(healthy_ber: float, last_ber: float, share: float) -> float:
    """The error rate of an optic after this share of the way from healthy to ``last_ber``.

    Light goes at an even pace, so the logarithm of the error rate rises fast at first and slower
    near the end.
    """
    ends = tail_distance(np.array([healthy_ber, last_ber]))
    now = ends[0] + (ends[1] - ends[0]) * min(1.0, max(0.0, share))
    return float(error_rate(np.array([now]))[0])


# A bench of ports --------------------------------------------------------------------------------

BER_MEDIAN = 1e-8
BER_SPREAD_DECADES = 0.8
"""Healthy optics of one kind differ by decades, and stay where they are."""
LIGHT_SPREAD_DB = 1.0
LANE_SPREAD_DB = 0.4
CELSIUS, CELSIUS_SPREAD = 52.0, 3.0
PER_DEGREE, PER_DEGREE_SPREAD = 0.003, 0.0008
"""Share of Q that a degree takes: eight degrees are some 0.4 decades."""
WANDER, WANDER_SECONDS = 0.004, 2_400.0
"""How far Q strays by itself, as a share, and for how long: a tenth of a decade."""
LIGHT_NOISE_DB = 0.05
CELSIUS_NOISE = 0.4


class Readings(NamedTuple):
    """What ports count in one tick, and what their modules show at its end."""

    corrected_bits: Floats
    lost_blocks: NDArray[np.int64]
    celsius: Floats
    watts: Floats
    """[ports, lanes]."""
    is_up: Bools


class OpticBench:
    """Ports with optics at the ends of idle or busy links: correction works on both alike."""

    def __init__(
        self,
        ports: int,
        random: np.random.Generator,
        *,
        bits_per_second: float = 4e11,
        lanes: int = 4,
    ) -> None:
        self._random = random
        self.bits_per_second = bits_per_second
        self.lanes = lanes
        rates = 10.0 ** random.normal(math.log10(BER_MEDIAN), BER_SPREAD_DECADES, ports)
        self.healthy = tail_distance(np.clip(rates, 1e-13, 1e-6))
        self._light_db = random.normal(0.0, LIGHT_SPREAD_DB, (ports, 1)) + random.normal(
            0.0, LANE_SPREAD_DB, (ports, lanes)
        )
        self._celsius = random.normal(CELSIUS, CELSIUS_SPREAD, ports)
        self._per_degree = np.abs(random.normal(PER_DEGREE, PER_DEGREE_SPREAD, ports))
        self._wander = random.normal(0.0, WANDER, ports)
        self.warmer: Floats = np.zeros(ports)
        """Degrees above what is usual for each port."""
        self.lost_db: Floats = np.zeros(ports)
        """Light that is lost on the way, or not sent, in decibels."""
        self.is_up: Bools = np.ones(ports, dtype=np.bool_)

    def replace(self, port: int) -> None:
        """Another module in the same cage."""
        rate = 10.0 ** self._random.normal(math.log10(BER_MEDIAN), BER_SPREAD_DECADES)
        self.healthy[port] = tail_distance(np.array([rate]))[0]
        self._light_db[port] += self._random.normal(0.0, LIGHT_SPREAD_DB)
        self.lost_db[port] = 0.0

    def raw_ber(self) -> Floats:
        """Of each port now: light lost, degrees and wandering taken together."""
        closed = 10.0 ** (-self.lost_db / 10.0)
        return error_rate(
            self.healthy * closed * (1.0 - self._per_degree * self.warmer + self._wander)
        )

    def tick(self, seconds: float) -> Readings:
        """Let so much time pass."""
        keep = math.exp(-seconds / WANDER_SECONDS)
        fresh = self._random.normal(0.0, WANDER, len(self._wander))
        self._wander = keep * self._wander + math.sqrt(1.0 - keep * keep) * fresh
        bits = self.bits_per_second * seconds * self.is_up
        ber = self.raw_ber()
        lost, _ = codeword_failures(ber)
        blocks = bits / (CODEWORD_SYMBOLS * SYMBOL_BITS)
        ports = len(ber)
        light_db = (
            self._light_db
            - self.lost_db[:, None]
            + self._random.normal(0.0, LIGHT_NOISE_DB, self._light_db.shape)
        )
        return Readings(
            corrected_bits=self._random.poisson(bits * ber * (1.0 - lost)).astype(np.float64),
            lost_blocks=self._random.poisson(blocks * lost),
            celsius=self._celsius + self.warmer + self._random.normal(0.0, CELSIUS_NOISE, ports),
            watts=RECEIVE_POWER_MILLIWATTS / 1e3 * 10.0 ** (light_db / 10.0) * self.is_up[:, None],
            is_up=self.is_up.copy(),
        )
