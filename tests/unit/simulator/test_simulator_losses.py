"""Bit errors become lost codewords, lost packets and lost goodput, at the right rates."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from simulator.network.losses import (
    codeword_failures,
    link_errors,
    packet_bytes,
    recover,
    wire_efficiency,
)
from simulator.topology.model import Fabric, Floats, LinkKind
from tests.worlds.network_cases import small_cluster, world_of

LINE_BPS = 400e9
PACKET_BITS = 8 * packet_bytes(Fabric.ROCE)


def exact_failure(raw_ber: str) -> float:
    """P(more than 15 of 544 symbols of 10 bits are wrong), with digits to spare."""
    with localcontext(prec=120):
        right = (1 - Decimal(raw_ber)) ** 10
        wrong = 1 - right
        terms = (math.comb(544, k) * wrong**k * right ** (544 - k) for k in range(16, 545))
        return float(sum(terms))


@pytest.mark.parametrize("raw_ber", ["2e-6", "1e-5", "1e-4", "1e-3", "1e-2"])
def test_lost_codewords_agree_with_exact_binomial_sums(raw_ber: str) -> None:
    lost, _ = codeword_failures(np.array([float(raw_ber)]))
    assert lost[0] == pytest.approx(exact_failure(raw_ber), rel=1e-9, abs=0.0)


def test_of_good_cables_the_first_term_is_enough() -> None:
    for raw_ber in ("1e-9", "1e-6"):
        lost, _ = codeword_failures(np.array([float(raw_ber)]))
        assert lost[0] == pytest.approx(exact_failure(raw_ber), rel=1e-3, abs=0.0)


def test_correction_is_a_cliff() -> None:
    world = world_of(small_cluster())
    up = world.topology.up(0)
    world.link_raw_ber[up] = 1e-5
    assert link_errors(world).packet_corruption[up] < 1e-25
    world.link_raw_ber[up] = 1e-3
    assert link_errors(world).packet_corruption[up] > 1e-4
    world.link_raw_ber[up] = 1e-2
    assert link_errors(world).packet_corruption[up] > 0.99


def test_a_packet_is_damaged_by_any_codeword_that_it_touches() -> None:
    world = world_of(small_cluster())
    world.link_raw_ber[:] = 2e-4
    lost, _ = codeword_failures(world.link_raw_ber[:1])
    # 4,178 bytes fill six and a half codewords of 5,140 bits of data, and begin anywhere.
    assert link_errors(world).packet_corruption[0] == pytest.approx(7.5 * lost[0], rel=0.01, abs=0)


def test_nothing_overflows_from_a_perfect_cable_to_noise() -> None:
    lost, symbols = codeword_failures(np.array([0.0, 1e-30, 1e-12, 0.1, 0.5, 1.0]))
    assert lost[:2].tolist() == [0.0, 0.0]
    assert 0 < lost[2] < 1e-100
    assert lost[3:] == pytest.approx([1.0, 1.0, 1.0])
    assert symbols[-1] == pytest.approx(544.0)


def test_corrected_bits_are_the_raw_errors_until_correction_fails() -> None:
    world = world_of(small_cluster())
    up = world.topology.up(0)
    world.link_raw_ber[up] = 1e-8
    errors = link_errors(world)
    assert errors.corrected_per_bit[up] == pytest.approx(1e-8)
    assert errors.symbol_errors_per_bit[up] < 1e-40
    world.link_raw_ber[up] = 5e-2
    errors = link_errors(world)
    assert errors.corrected_per_bit[up] < 1e-3
    # A symbol of ten bits is wrong with 1 - 0.95^10.
    assert errors.symbol_errors_per_bit[up] == pytest.approx((1 - 0.95**10) / 10, rel=1e-3)


def test_links_of_a_new_cluster_lose_nothing() -> None:
    topology = small_cluster(hosts=32)
    world = world_of(topology)
    world.reset()
    errors = link_errors(world)
    assert errors.packet_loss.max() < 1e-30
    assert errors.corrected_per_bit[topology.kind > LinkKind.PCIE_IN].min() > 0
    assert not errors.corrected_per_bit[topology.kind <= LinkKind.PCIE_IN].any()


def test_silent_loss_adds_to_corruption() -> None:
    world = world_of(small_cluster())
    up = world.topology.up(0)
    world.link_loss[up] = 0.25
    errors = link_errors(world)
    assert errors.packet_corruption[up] == 0.0
    assert errors.packet_loss[up] == pytest.approx(0.25)
    world.link_raw_ber[up] = 1e-3
    both = link_errors(world)
    assert both.packet_loss[up] == pytest.approx(0.25 + 0.75 * both.packet_corruption[up])


def goodput(loss: Floats) -> Floats:
    """Share of line rate that is left."""
    line = np.full(len(loss), LINE_BPS)
    return recover(loss, line, PACKET_BITS).goodput_bps / LINE_BPS


def test_goodput_falls_with_every_loss() -> None:
    shares = goodput(np.logspace(-9, -0.01, 200))
    assert (np.diff(shares) < 0).all()
    assert shares[0] > 0.9999
    assert shares[-1] < 1e-3


def test_go_back_n_is_as_bad_as_people_measured() -> None:
    clean, little, tenth, nearly_nothing = goodput(np.array([0.0, 1e-5, 1e-4, 1e-2]))
    assert clean == 1.0
    assert 0.97 < little < 1.0
    assert 0.85 < tenth < 0.95
    assert nearly_nothing < 0.1


def test_what_never_arrives_moves_nothing() -> None:
    result = recover(np.array([1.0, 0.0]), np.array([LINE_BPS, 0.0]), PACKET_BITS)
    assert result.goodput_bps.tolist() == [0.0, 0.0]
    assert np.isfinite(result.sent_per_delivered).all()


def test_headers_cost_two_percent_on_ethernet_and_less_on_infiniband() -> None:
    assert wire_efficiency(Fabric.ROCE) == pytest.approx(0.980, abs=0.001)
    assert wire_efficiency(Fabric.INFINIBAND) == pytest.approx(0.994, abs=0.001)
