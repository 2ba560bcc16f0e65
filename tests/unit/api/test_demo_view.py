"""The demo's picture and its plain lines: what stands there, at every width and on each fabric."""

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from simulator.demo import lines as lines_module
from simulator.demo.answers import Answers, JobAnswer, read_found
from simulator.demo.lines import Lines
from simulator.demo.menu import showable
from simulator.demo.run import make_svg
from simulator.demo.story import StepTimes, Story
from simulator.demo.view import (
    DOWN,
    SLOW,
    WAITS,
    Screen,
    gpu_colours,
    hosts_line,
    nic_colours,
    slowdown,
)
from simulator.engine import Simulation
from simulator.faults.model import Injection, Place
from simulator.jobs.model import JobSpec
from simulator.scenario import Scenario
from simulator.snapshot import Snapshot
from simulator.topology.build import ClusterSpec
from simulator.topology.model import Fabric

HOSTS, FAULT_AT, FAULT_SECONDS = 4, 10.0, 10.0
LINES_MAX = 23
"""Of a terminal of 24 lines, whose last one belongs to the cursor."""
ANSWERS = Answers(
    hosts=HOSTS,
    samples=123_456,
    jobs={"llama": JobAnswer(step_seconds=0.512, network_share=0.25, wait_share=0.5)},
    found=read_found(
        [
            {
                "metric": {
                    "incident": "20261115-120000-lusab-babad",
                    "cause": "slow_link",
                    "host": "node0000",
                    "device": "mlx5_3",
                    "job": job,
                },
                "value": [0, "0.9"],
            }
            for job in ("llama", "mixtral")
        ]
    ),
)
SLOW_NIC = showable()["slow_nic"]


def simulate(fabric: Fabric = Fabric.ROCE) -> Simulation:
    speed = "NDR" if fabric is Fabric.INFINIBAND else "400GbE"
    cluster = ClusterSpec(hosts=HOSTS, speed=speed, fabric=fabric, hosts_per_leaf=2)
    # Hosts of different leaves, so that there is traffic between switches.
    jobs = (
        JobSpec(name="llama", hosts=(0, 2), compute_seconds=0.4, startup_seconds=1.0),
        JobSpec(name="mixtral", hosts=(1, 3), compute_seconds=0.6, startup_seconds=1.0),
    )
    return Simulation(Scenario(cluster=cluster, jobs=jobs))


def injection(start_s: float = FAULT_AT) -> Injection:
    nic = 3
    place = Place(host=0, nic=nic)
    return Injection(SLOW_NIC, place, start_s, start_s + FAULT_SECONDS, 1.0)


def play(simulation: Simulation, seconds: int) -> Iterator[Snapshot]:
    for _ in range(seconds):
        yield simulation.tick()


def drawn(screen: Screen, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True, color_system=None)
    console.print(screen.render(width))
    return console.export_text().splitlines()


@pytest.fixture(scope="module", params=list(Fabric), ids=str)
def played(request: pytest.FixtureRequest) -> Screen:
    """A screen that has seen a slow NIC for some seconds."""
    simulation = simulate(request.param)
    screen = Screen("http://127.0.0.1:9700")
    strike = injection()
    screen.stories.append(Story(simulation.inject(strike), strike.start_s, strike.end_s))
    for snapshot in play(simulation, 15):
        screen.take(snapshot, ANSWERS, 0.0)
    return screen


@pytest.mark.parametrize("width", [80, 120])
def test_the_picture_fits_and_says_who_and_what(played: Screen, width: int) -> None:
    lines = drawn(played, width)
    text = "\n".join(lines)
    assert len(lines) <= LINES_MAX
    assert max(map(len, lines)) <= width
    assert next(line.split()[:2] for line in lines if "◆" in line) == ["3", "◆■■■"]
    for word in (
        *("llama", "mixtral", "slow_nic", "node0000/mlx5_3", "http://127.0.0.1:9700 "),
        *(f"{HOSTS} of {HOSTS} agents heard", "123,456 samples", "512 ms", "25%", "50%"),
        *("found: slow_link at node0000 device mlx5_3, 90% sure", "5 s"),
    ):
        assert word in text, f"{word!r} is not in\n{text}"


def test_a_screen_that_has_seen_nothing_says_so() -> None:
    screen = Screen("http://127.0.0.1:9700")
    assert drawn(screen, 80) == ["starting …"]
    screen.take(simulate().tick(), Answers(), 0.0)
    assert "nothing yet: all is well" in "\n".join(drawn(screen, 80))


def test_only_the_last_faults_are_shown(played: Screen) -> None:
    screen = Screen("", stories=played.stories * 9, snapshot=played.snapshot, _ports=played._ports)
    assert len(drawn(screen, 80)) <= LINES_MAX


def test_time_that_was_lost_stands_in_the_headline(played: Screen) -> None:
    assert "behind" not in "\n".join(drawn(played, 80))
    late = Screen("", snapshot=played.snapshot, _ports=played._ports, lag_s=2.0, skipped_s=9.0)
    assert "11 s behind" in "\n".join(drawn(late, 80))


def test_what_is_broken_has_its_own_colour(played: Screen) -> None:
    simulation = simulate()
    snapshot = [*play(simulation, 4)][-1]
    ports = played._ports
    assert ports is not None
    world = snapshot.world
    world.link_up[snapshot.topology.down(5)] = False
    world.gpu_is_dead[7] = True
    snapshot.gpus.sm_clock_mhz[6] *= 0.5
    world.host_is_down[1] = True
    world.host_agent_is_dead[2] = True
    assert nic_colours(snapshot, ports)[5] == DOWN
    assert nic_colours(snapshot, ports)[4] != DOWN
    assert gpu_colours(snapshot)[5:9] == [gpu_colours(snapshot)[0], SLOW, DOWN, DOWN]
    line = hosts_line(snapshot)
    assert line.plain.split() == ["lx?m"] * 2
    assert {str(span.style) for span in line.spans} >= {DOWN, WAITS}


def test_a_hang_is_told_by_how_long_it_lasts() -> None:
    status = simulate().tick().jobs[0]
    status.hung_since_s = 20.0
    assert slowdown(status, 1.0, 62.0).plain == "stuck 42 s"


def test_a_step_is_compared_with_the_usual_one(played: Screen) -> None:
    """The slow NIC is llama's, and mixtral goes on as before."""
    assert played.snapshot is not None
    by_job = {
        job.name: slowdown(job, played.steps.usual(job.name), played.snapshot.time_s).plain
        for job in played.snapshot.jobs
    }
    assert int(by_job["llama"].rstrip("%")) > 20
    assert abs(int(by_job["mixtral"].rstrip("%"))) < 10


def test_the_lines_say_what_happened_and_what_it_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "MEASURED_SECONDS", 5.0)
    console = Console(file=io.StringIO(), width=40, record=True)
    lines, simulation = Lines(console), simulate()
    strike = injection()
    lines.tell(Story(simulation.inject(strike), strike.start_s, strike.end_s))
    for snapshot in play(simulation, 22):
        lines.show(snapshot, ANSWERS)
    said = console.export_text().splitlines()
    measured = "the service measures llama: a step takes 512 ms, 25% network"
    assert [*said[:4], *said[5:]] == [
        f"0:10 injected slow_nic at node0000/mlx5_3: {SLOW_NIC.title}",
        "0:01 the service hears the agents of all 4 hosts",
        "0:01 found slow_link at node0000 device mlx5_3, 90% sure",
        f"0:05 {measured}",
        f"0:21 {measured}",
    ]
    assert said[4].startswith("0:20 slow_nic is over; a step took: llama ")
    numbers = [
        int(word.replace(",", ""))
        for word in said[4].split()
        if word[0].isdigit() and ":" not in word
    ]
    before, during, others_before, others_during = numbers
    assert during > 1.2 * before
    assert others_during == pytest.approx(others_before, rel=0.1)


def test_steps_that_nobody_ended_are_no_number() -> None:
    steps = StepTimes()
    simulation = simulate()
    for snapshot in play(simulation, 6):
        steps.add(snapshot)
    story = Story(simulation.inject(injection(90.0)), 90.0, 100.0)
    assert "llama (none ended) before, (none ended) during" in steps.compare(story, 95.0)


def test_the_picture_as_a_file_fetches_nothing(played: Screen) -> None:
    svg = make_svg(played)
    assert svg.startswith("<svg")
    assert "slow_nic" in svg
    assert "@font-face" not in svg
    assert "cdnjs" not in svg
