"""Real rings and pipelines in live rounds: what was wrong is named in time, and nothing else is."""

import random

import pytest

from tests.stands.diagnosing import ROOT
from tests.tools.captures import RINGS
from tests.tools.cut import CUT
from tests.tools.live_table import PIPELINES, is_about, seconds_of, wrong_ones
from tests.worlds.real_rings import Part, Spliced, play

OURS = ROOT / "tests/fixtures/diagnose"
"""Cut short, and in every clone."""
CALM = [Part(OURS / "healthy"), Part(OURS / "net3", "calm"), Part(OURS / "compute5", "calm")]
FAULTS = [Part(OURS / "net3", "fault"), Part(OURS / "compute5", "fault")]
NAMED_SECONDS = 20.0
"""By when a fault that lasts is named: two rounds, and what a round takes to be sure."""
SEEDS = CUT.choose(range(40), parts=20)

needs_rings = pytest.mark.skipif(not RINGS.is_dir(), reason="no recorded rings beside the checkout")


def drawn(seed: int) -> list[Part]:
    """Two or three faults that last 10 to 40 s, with calm before, between and after."""
    chance = random.Random(seed)
    parts: list[Part] = []
    for _ in range(chance.randint(2, 3)):
        parts += chance.choices(CALM, k=chance.randint(3, 6))
        fault = chance.choice(FAULTS)
        parts += [fault] * round(chance.uniform(10.0, 40.0) / seconds_of(fault))
    return parts + chance.choices(CALM, k=2)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_one_after_the_other_are_each_named_and_no_other_rank(seed: int) -> None:
    spliced = Spliced(drawn(seed))
    said = play(spliced)
    assert wrong_ones(said, spliced.faults) == []
    for number, fault in enumerate(spliced.faults):
        # What comes again soon is the same incident, which still stands.
        stands = any(other[:2] == fault[:2] for other in spliced.faults[:number])
        late = [one.at_s - fault.first_s for one in said if is_about(one, fault)]
        assert stands or 0 < min(late, default=1e9) <= NAMED_SECONDS, (fault, said)


@needs_rings
@pytest.mark.parametrize(
    ("run", "is_named"),
    [
        ("net3", True),
        ("groups_net3", True),
        ("tree_net2", True),
        ("half4", True),
        ("groups_cpu6", True),
        ("compute5", False),  # it lasts for two seconds: a capture's, and not a person's
        ("cpu2", False),
        ("healthy", False),
        ("noisy", False),
        ("ckpt", False),
    ],
)
def test_a_recorded_run_is_judged_live_as_it_was(run: str, is_named: bool) -> None:  # noqa: FBT001
    spliced = Spliced([Part(RINGS / run)])
    said = play(spliced)
    assert wrong_ones(said, spliced.faults) == []
    assert bool(said) == is_named


@needs_rings
def test_a_late_rank_of_a_real_pipeline_is_named_live() -> None:
    calm, late = Part(PIPELINES / "healthy"), Part(PIPELINES / "late0", "fault")
    spliced = Spliced([calm, calm, *[late] * 6])
    said = play(spliced)
    (fault,) = spliced.faults
    assert [is_about(one, fault) for one in said] == [True]
    assert 0 < said[0].at_s - fault.first_s <= NAMED_SECONDS


@needs_rings
@pytest.mark.parametrize("run", ["healthy", "uneven"])
def test_a_real_pipeline_in_which_nothing_is_wrong_is_left_alone_live(run: str) -> None:
    assert play(Spliced([Part(PIPELINES / run)] * 3)) == []
