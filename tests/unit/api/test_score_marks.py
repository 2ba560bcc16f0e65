"""The scoreboard's arithmetic: what counts as found, as right at once, and as a false alarm."""

import msgspec
import pytest

from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason, Verdict
from simulator.scenario import Collision, Truth
from simulator.score.marks import (
    GRACE_NS,
    NOTHING,
    Run,
    Saying,
    false_sayings,
    is_by_chance,
    judge,
    mark,
)
from simulator.score.report import Scoreboard, to_json, to_markdown

NIC = Culprit(host="node0003", device="mlx5_1", port="1")
SWITCH_SIDE = Culprit(switch="leaf-1", switch_port="4")
START, END = 100 * NS, 200 * NS


def truth(*causes: Cause) -> Truth:
    return Truth(
        fault="slow_nic",
        title="A NIC is slow.",
        causes=causes,
        reason=Reason.NIC,
        culprits=(NIC, SWITCH_SIDE) if causes else (),
        strength=0.5,
        start_ns=START,
        end_ns=END,
    )


def say(seconds: float, cause: Cause = Cause.SLOW_LINK, culprit: Culprit = NIC) -> Saying:
    at = round(seconds * NS)
    return Saying(Verdict(cause=cause, culprit=culprit, since_ns=at), at)


def run(*sayings: Saying, causes: tuple[Cause, ...] = (Cause.SLOW_LINK,)) -> Run:
    return Run(
        case="slow_nic",
        seed=1,
        seconds=300.0,
        truths=[truth(*causes)],
        sayings=list(sayings),
    )


def test_a_right_verdict_is_found_with_its_delay() -> None:
    [result] = judge(run(say(112)))
    assert (result.is_found, result.is_first_right, result.delay_s) == (True, True, 12.0)


def test_silence_is_a_miss() -> None:
    [result] = judge(run())
    assert (result.is_found, result.is_first_right, result.delay_s) == (False, False, None)


def test_either_end_of_a_link_is_a_right_name() -> None:
    [result] = judge(run(say(112, culprit=SWITCH_SIDE)))
    assert result.is_found


def test_more_names_than_needed_are_right_and_fewer_are_wrong() -> None:
    more = msgspec.structs.replace(NIC, job="llama", rank=25)
    assert judge(run(say(112, culprit=more)))[0].is_found
    assert not judge(run(say(112, culprit=Culprit(host="node0003"))))[0].is_found
    other = msgspec.structs.replace(NIC, host="node0004")
    assert not judge(run(say(112, culprit=other)))[0].is_found


def test_a_verdict_that_names_nobody_is_neither_right_nor_wrong_while_a_fault_acts() -> None:
    unknown = say(150, culprit=Culprit(job="llama"))
    marks = mark([run(unknown)])
    assert false_sayings(run(unknown)) == []
    assert (marks.overall.found, marks.overall.first_right, marks.sureness) == (0, 0, [])
    assert mark([run(unknown, causes=())]).false_incidents == 1
    too_late = say(200 + GRACE_NS / NS + 1, culprit=Culprit())
    assert false_sayings(run(too_late)) == [too_late]


def test_a_wrong_first_verdict_costs_the_first_place_and_precision() -> None:
    marks = mark([run(say(110, Cause.STRAGGLER), say(120))])
    assert (marks.overall.found, marks.overall.first_right) == (1, 0)
    assert marks.overall.precision == 0.5
    by_cause = {row.name: row for row in marks.by_cause}
    assert by_cause["straggler"].precision == 0.0
    assert by_cause["slow_link"].precision == 1.0
    assert marks.confusion == {"slow_link": {"straggler": 1}}


@pytest.mark.parametrize("seconds", [99.0, (END + GRACE_NS) / NS + 1])
def test_a_verdict_before_the_fault_or_long_after_it_is_false(seconds: float) -> None:
    marks = mark([run(say(seconds))])
    assert marks.overall.found == 0
    assert marks.overall.precision == 0.0


def test_whatever_is_said_of_a_benign_run_is_a_false_incident() -> None:
    marks = mark([run(say(112), causes=()), run(causes=())])
    assert marks.overall.truths == 0
    assert marks.false_incidents == 1
    assert marks.false_per_day == pytest.approx(1 / 600 * 86_400)
    assert marks.confusion == {NOTHING: {NOTHING: 1, "slow_link": 1}}


def test_delays_are_a_median_and_a_ninetieth_percentile() -> None:
    marks = mark([run(say(100 + delay)) for delay in range(1, 12)])
    assert marks.overall.delay_median_s == pytest.approx(6.0)
    assert marks.overall.delay_p90_s == pytest.approx(10.0)


def test_a_run_that_broke_off_is_named_and_missed() -> None:
    broken = msgspec.structs.replace(run(), error="no space left")
    marks = mark([broken])
    assert marks.broken == ["slow_nic, seed 1: no space left"]
    assert (marks.overall.truths, marks.overall.found) == (1, 0)


def test_the_scoreboard_can_be_read_by_machines_and_people() -> None:
    runs = [run(say(112)), run(causes=())]
    board = Scoreboard(version="1", seeds=[1, 2], marks=mark(runs), runs=runs)
    assert msgspec.json.decode(to_json(board), type=Scoreboard) == board
    text = to_markdown(board)
    assert "| slow_link | 1 | 100% | 100% | 100% | 12 s | 12 s |" in text
    assert "False incidents: 0" in text


def test_a_scoreboard_without_any_verdict_has_no_precision() -> None:
    text = to_markdown(Scoreboard(version="1", seeds=[1], marks=mark([run()]), runs=[run()]))
    assert "| slow_link | 1 | 0% | 0% | - | - | - |" in text


# What chance does --------------------------------------------------------------------------------

UPLINK = Culprit(switch="leaf-1", switch_port="17")


def chance_run(*sayings: Saying) -> Run:
    """Flows met at the uplink in the second half of the fault's time, and a while longer."""
    collision = Collision(
        culprits=(UPLINK, Culprit(switch="spine-0", switch_port="2")),
        jobs=("a", "b"),
        start_ns=150 * NS,
        end_ns=250 * NS,
        lost_share=0.3,
    )
    return msgspec.structs.replace(run(*sayings), collisions=[collision])


def test_a_verdict_about_flows_that_did_meet_is_not_false_and_finds_no_fault() -> None:
    said = chance_run(say(160, Cause.CONGESTION, UPLINK))
    marks = mark([said])
    assert false_sayings(said) == []
    assert (marks.by_chance, marks.overall.found, marks.overall.sayings) == (1, 0, 0)
    assert [one.right for one in marks.sureness] == [1]


@pytest.mark.parametrize(
    "saying",
    [
        say(140, Cause.CONGESTION, UPLINK),
        say(281, Cause.CONGESTION, UPLINK),
        say(160, Cause.CONGESTION, Culprit(switch="leaf-1", switch_port="18")),
        say(160, Cause.CONGESTION, Culprit(switch="leaf-1")),
        say(160, Cause.SLOW_LINK, UPLINK),
    ],
    ids=["before it", "long after it", "the port beside it", "no port", "another cause"],
)
def test_a_verdict_about_a_collision_that_did_not_happen_stays_false(saying: Saying) -> None:
    said = chance_run(saying)
    assert false_sayings(said) == [saying]
    assert mark([said]).by_chance == 0


def test_a_verdict_about_the_injected_fault_is_no_chance() -> None:
    said = chance_run(say(160))
    assert not is_by_chance(said.sayings[0], said)
    assert mark([said]).overall.found == 1


def test_in_a_healthy_run_a_true_collision_is_no_false_incident() -> None:
    healthy = msgspec.structs.replace(
        chance_run(say(160, Cause.CONGESTION, UPLINK)), truths=[truth()]
    )
    wrong = msgspec.structs.replace(healthy, collisions=[])
    assert (mark([healthy]).false_incidents, mark([wrong]).false_incidents) == (0, 1)
