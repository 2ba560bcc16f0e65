"""The cost of bit errors and lost packets: forward error correction, then go-back-N.

A bad cable flips bits. The link's code corrects nearly all of them up to a sharp limit: a codeword
with too many wrong symbols is lost, and with it the packets it carries. The sender of a lost packet
starts again from there, or, when no later packet shows the gap, waits for its timer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from simulator.topology.model import Fabric, Floats
from simulator.topology.world import World

MTU_BYTES = 4096
"""Payload of a packet: the largest that RDMA allows, and what training clusters use."""
HEADER_BYTES = {Fabric.ROCE: 82, Fabric.INFINIBAND: 26}
"""RoCEv2: preamble and gap 20, Ethernet 18, IPv4 20, UDP 8, BTH 12, ICRC 4. InfiniBand: LRH 8, BTH
12, ICRC 4, VCRC 2. RETH is left out: only the first packet of a message has one."""

SYMBOL_BITS = 10
CODEWORD_SYMBOLS = 544
CODEWORD_DATA_SYMBOLS = 514
CORRECTABLE_SYMBOLS = 15
"""RS(544,514), the code of every lane of 50 Gb/s and more; older ones use RS(528,514), which is a
little weaker, and are treated alike."""
LEADING_TERM_BER = 1e-6
"""Below it the binomial tail is its first term (the second is 3,000 times smaller)."""

ROUND_TRIP_SECONDS = 12e-6
"""From a packet to its negative acknowledgement: three tiers of switches, cables and two NICs."""
ACK_TIMEOUT_SECONDS = 4e-3
"""4.096 us x 2^10: adaptive retransmission tries first after milliseconds."""
TAIL_SHARE = 0.02
"""Of losses that no later packet shows: about the last two of a message of half a megabyte. So one
loss in 10,000 costs a flow of 400 Gb/s a tenth of its goodput, and one in 100 nearly all."""
DROPS_PER_GAP = 16.0
"""A full queue drops packets in runs, and go-back-N pays once for a run."""


@dataclass(frozen=True, eq=False)
class LinkErrors:
    """What errors do on each directed link; rates per bit are of all bits, idle ones too."""

    corrected_per_bit: Floats
    """Bits that correction repairs."""
    symbol_errors_per_bit: Floats
    """Symbols in codewords that it cannot repair."""
    packet_corruption: Floats
    """Probability that a packet of full size arrives damaged."""
    packet_loss: Floats
    """Probability that it does not arrive: damaged, or vanished without a trace."""


@dataclass(frozen=True, eq=False)
class Recovery:
    """The effect of go-back-N at a loss probability."""

    sent_per_delivered: Floats
    """Packets on the wire for one that counts: 1 without loss."""
    goodput_bps: Floats
    """The most that arrives in order, at the given line rate and in its unit."""


def wire_efficiency(fabric: Fabric) -> float:
    return MTU_BYTES / (MTU_BYTES + HEADER_BYTES[fabric])


def packet_bytes(fabric: Fabric) -> float:
    return float(MTU_BYTES + HEADER_BYTES[fabric])


def _log_binomial() -> Floats:
    """Logarithms of the number of ways to choose 16 to 544 symbols of a codeword."""
    total = math.lgamma(CODEWORD_SYMBOLS + 1)
    return np.array(
        [
            total - math.lgamma(k + 1) - math.lgamma(CODEWORD_SYMBOLS - k + 1)
            for k in range(CORRECTABLE_SYMBOLS + 1, CODEWORD_SYMBOLS + 1)
        ]
    )


LOG_BINOMIAL = _log_binomial()
WRONG_SYMBOLS = np.arange(CORRECTABLE_SYMBOLS + 1.0, CODEWORD_SYMBOLS + 1.0)
"""How many symbols of a lost codeword can be wrong."""


def codeword_failures(raw_ber: Floats) -> tuple[Floats, Floats]:
    """For each bit error rate: P(codeword is lost), and wrong symbols expected in lost ones.

    The second is a mean over all codewords, lost or not. Exact binomial tails, in logarithms: they
    hold down to 1e-300.
    """
    ber = np.clip(raw_ber, 0.0, 1.0 - 1e-12)
    with np.errstate(divide="ignore"):
        log_wrong = np.log(-np.expm1(SYMBOL_BITS * np.log1p(-ber)))
    log_right = SYMBOL_BITS * np.log1p(-ber)
    first = CORRECTABLE_SYMBOLS + 1
    lost: Floats = np.exp(
        LOG_BINOMIAL[0] + first * log_wrong + (CODEWORD_SYMBOLS - first) * log_right
    )
    symbols: Floats = lost * first
    many = np.flatnonzero(ber > LEADING_TERM_BER)
    if len(many):
        # Few cables of a cluster are this bad, so the table of all terms stays small.
        terms = np.exp(
            LOG_BINOMIAL
            + np.outer(log_wrong[many], WRONG_SYMBOLS)
            + np.outer(log_right[many], CODEWORD_SYMBOLS - WRONG_SYMBOLS)
        )
        lost[many] = np.minimum(terms.sum(axis=1), 1.0)
        symbols[many] = terms @ WRONG_SYMBOLS
    return lost, symbols


def link_errors(world: World) -> LinkErrors:
    lost, symbols = codeword_failures(world.link_raw_ber)
    packet_bits = 8 * packet_bytes(world.topology.fabric)
    # A packet begins and ends somewhere inside a codeword, so it touches one more than it fills.
    codewords = packet_bits / (CODEWORD_DATA_SYMBOLS * SYMBOL_BITS) + 1
    with np.errstate(divide="ignore"):
        corruption = -np.expm1(codewords * np.log1p(-lost))
    return LinkErrors(
        corrected_per_bit=world.link_raw_ber * (1 - lost),
        symbol_errors_per_bit=symbols / (CODEWORD_SYMBOLS * SYMBOL_BITS),
        packet_corruption=corruption,
        packet_loss=corruption + (1 - corruption) * np.clip(world.link_loss, 0.0, 1.0),
    )


def recover(loss: Floats, line_bps: Floats, packet_bits: float) -> Recovery:
    """Goodput of flows, each alone at its line rate, when packets are lost with ``loss``.

    A gap throws away what was in flight (`ROUND_TRIP_SECONDS` of it), which is sent again and costs
    the wire; a lost tail costs a timer, in which the wire is free.
    """
    losing = np.minimum(loss, 1 - 1e-9)
    losses_per_delivered = losing / (1 - losing)
    window = np.maximum(line_bps * ROUND_TRIP_SECONDS / packet_bits, 1.0)
    sent = 1 + losses_per_delivered * window
    idle = losses_per_delivered * TAIL_SHARE * ACK_TIMEOUT_SECONDS
    with np.errstate(divide="ignore"):
        seconds = sent * packet_bits / line_bps + idle
    goodput = np.where(loss < 1 - 1e-9, packet_bits / seconds, 0.0)
    return Recovery(sent_per_delivered=np.where(goodput > 0, sent, 1.0), goodput_bps=goodput)
