"""A simulated week of a fleet: same result for a seed, limits on drains, and what helps."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from alerts.policy.file import shipped_policy
from collector.cli import main
from simulator.score.week.draw import Week, draw
from simulator.score.week.model import SLOWING, STOPPING, Arm, Losses, Outcome, Spec
from simulator.score.week.table import week_markdown
from simulator.score.week.yard import play

SMALL = Spec(hosts=128, days=1.0, hosts_per_leaf=16, stops_per_host_day=0.1, slows_per_host_day=0.1)
"""Fifteen times as many faults as usual: more than the policy may drain."""
SEED = 7


@pytest.fixture(scope="module")
def week() -> Week:
    return draw(SMALL, SEED)


@pytest.fixture(scope="module")
def outcomes(week: Week) -> dict[Arm, Outcome]:
    return {arm: play(SMALL, week, SEED, arm) for arm in Arm}


def test_the_same_seed_gives_the_same_week(week: Week, outcomes: dict[Arm, Outcome]) -> None:
    assert draw(SMALL, SEED) == week
    assert play(SMALL, draw(SMALL, SEED), SEED, Arm.MOVED) == outcomes[Arm.MOVED]
    assert draw(SMALL, SEED + 1) != week


def test_every_gpu_hour_is_somewhere(outcomes: dict[Arm, Outcome]) -> None:
    """Inexact, because an extra checkpoint counts at once and a job's last tick is cut."""
    whole = SMALL.hosts * SMALL.gpus_per_host * SMALL.days * 24
    for outcome in outcomes.values():
        losses = outcome.losses
        assert losses.useful + losses.lost + losses.idle == pytest.approx(whole, rel=0.02)


@pytest.mark.rotating(3, turn=1)
def test_help_loses_less() -> None:
    """Three seeds with three times the usual faults, because one week may be chance."""
    spec = Spec(
        hosts=256, days=2.0, hosts_per_leaf=16, stops_per_host_day=0.015, slows_per_host_day=0.015
    )
    lost, slow = dict.fromkeys(Arm, 0.0), dict.fromkeys(Arm, 0.0)
    for seed in (1, 2, 3):
        for arm in (Arm.ALONE, Arm.MOVED):
            outcome = play(spec, draw(spec, seed), seed, arm)
            lost[arm] += outcome.losses.lost
            slow[arm] += outcome.losses.slow
    assert lost[Arm.MOVED] < 0.6 * lost[Arm.ALONE]
    assert slow[Arm.MOVED] < 0.4 * slow[Arm.ALONE]


def test_only_the_policy_drains_and_never_past_its_share(outcomes: dict[Arm, Outcome]) -> None:
    limit = shipped_policy().limits.room(SMALL.hosts) / SMALL.hosts
    for arm, outcome in outcomes.items():
        assert bool(outcome.drains) == (arm in (Arm.DRAINED, Arm.MOVED))
        assert outcome.share_max <= limit == outcome.share_limit
    # So many faults exceed the limit: the policy reached it and refused further drains.
    assert outcomes[Arm.DRAINED].share_max == limit
    assert outcomes[Arm.DRAINED].refused["share_limit"] > 0


def test_where_nothing_breaks_nothing_is_lost_or_drained() -> None:
    quiet = msgspec.structs.replace(
        SMALL, days=0.5, stops_per_host_day=1e-9, slows_per_host_day=1e-9, false_per_day=0.0
    )
    for arm in Arm:
        outcome = play(quiet, draw(quiet, SEED), SEED, arm)
        assert (outcome.losses.lost, outcome.drains, outcome.killed) == (0.0, 0, 0)


def test_what_is_said_about_nothing_is_the_only_thing_that_costs_without_faults() -> None:
    alarmed = msgspec.structs.replace(
        SMALL, stops_per_host_day=1e-9, slows_per_host_day=1e-9, false_per_day=20.0
    )
    outcome = play(alarmed, draw(alarmed, SEED), SEED, Arm.DRAINED)
    assert outcome.false_drains == outcome.drains > 0
    assert outcome.losses.held_well > 0
    assert outcome.losses.slow == outcome.losses.hung == outcome.losses.held == 0.0


def test_weights_of_kinds_are_shares() -> None:
    for kinds in (STOPPING, SLOWING):
        assert sum(kind.weight for kind in kinds) == pytest.approx(1.0)


def test_the_table_has_every_arm_and_the_spread() -> None:
    def outcome(seed: int, arm: Arm, slow: float) -> Outcome:
        return Outcome(
            seed=seed, arm=arm, losses=Losses(slow=slow), faults=40, struck=30, killed=5, moved=0,
            finished=100, drains=2, false_drains=1, refused={"cooldown": 1}, share_max=0.01,
            share_limit=0.02, waited_hours=0.0,
        )  # fmt: skip

    losses = dict(zip(Arm, (1000.0, 800.0, 500.0, 250.0), strict=True))
    text = week_markdown(
        Spec(), [outcome(seed, arm, slow * seed) for seed in (1, 2) for arm, slow in losses.items()]
    )
    assert "seeds 1 to 2" in text
    assert "| **lost in all** | 1,500 (1,000 to 2,000) |" in text
    assert "| less than without us | 0% | 20% | 50% | 75% |" in text
    assert "at most 1.0% of the fleet were out, operators' holds included; 2.0% are allowed" in text
    assert "8 cooldown" in text


def test_the_command_writes_and_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulator.score.week.cli.Spec", lambda **kept: Spec(days=0.1, **kept))
    words = ["--week", "--hosts", "64", "--processes", "1", "--out", str(tmp_path)]
    assert main(["score", *words]) == 0
    written = json.loads((tmp_path / "week.json").read_bytes())
    assert [each["arm"] for each in written["outcomes"]] == list(Arm)
    assert "GPU-hours" in (tmp_path / "week.md").read_text("utf-8")
    assert "without us" in capsys.readouterr().out


def test_a_fleet_without_room_for_a_drain_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "--week", "--hosts", "8"]) != 0
    assert "--hosts 8: must be 64 to 4096" in capsys.readouterr().err
