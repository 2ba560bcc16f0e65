"""Probes between agents: what is lost and how long it takes, over wires that lose what is told."""

import argparse
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.agent.probe_cli import (
    SOURCE_PORTS_BEHIND,
    Way,
    add_arguments,
    lines_of,
    run,
)
from collector.contract.errors import HostError, SettingsError
from collector.contract.model import Missing, Sample
from collector.contract.probes import FLOW_LOST, LOST, ROUND_TRIP, SENT, TARGETS_MAX
from collector.doors.host import Host
from collector.doors.probes import LiveProber, Plan, Sending
from collector.parsing.probes import BYTES, REQUEST, WIRE_BYTES, Probe, decode, encode
from collector.sources.probes import (
    BUDGET_SHARE,
    LINK_BITS_LEAST,
    SOURCE,
    Settings,
    probes_of_round,
)
from tests.stands import namespaces
from tests.stands.leaf import BESIDE_FRAME_BYTES, counted
from tests.stands.ports import free_port
from tests.stands.service import eventually

ROOT = Path(__file__).resolve().parents[3]
FLOWS, PORT = 4, 9_797
AGENT = """
import json, sys
from collector.contract.model import Sample
from collector.doors.host import Host
from collector.sources.probes import SOURCE, Settings
source, host = SOURCE(Settings(**json.loads(sys.argv[1]))), Host()
for line in sys.stdin:
    found = []
    for each in source.read(host):
        what = each.value if isinstance(each, Sample) else f"{each.reason}: {each.detail}"
        found.append([each.series.metric, dict(each.series.labels), what])
    print(json.dumps(found), flush=True)
source.close()
"""


class Agent:
    """The source in a namespace; it answers from its first round on."""

    def __init__(self, inside: list[str], settings: dict[str, Any]) -> None:
        self.inside = inside
        words = [*inside, sys.executable, "-c", AGENT, json.dumps(settings)]
        self._process = subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def round(self) -> dict[tuple[str, str], float]:
        """One round: values by metric and the last of the labels (`to`, `flow`, `what`)."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        return {
            (metric, labels.get("flow") or labels.get("to") or labels["what"]): value
            for metric, labels, value in json.loads(process.stdout.readline())
        }

    def end(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(20)


@contextlib.contextmanager
def mesh(lost_ports: str, every: int) -> Iterator[tuple[Agent, Agent]]:
    """Two agents that probe each other over a wire that loses this."""
    if why := namespaces.why_not():
        pytest.skip(why)
    with namespaces.joined(middle=True) as joined:
        words = [
            sys.executable,
            "-m",
            "tests.stands.lossy_wire",
            "m0",
            "m1",
            lost_ports,
            str(every),
        ]
        inside = ["ip", "netns", "exec", joined.middle]
        wire = subprocess.Popen([*inside, *words], cwd=ROOT, stdout=subprocess.PIPE)
        assert wire.stdout is not None
        assert wire.stdout.readline() == b"ready\n"
        targets = [f"rail0 node-{place} {each}" for place, each in enumerate(joined.addresses)]
        agents = [
            Agent(
                joined.inside(place),
                {
                    "rails": [f"rail0 {address} {joined.interfaces[place]}"],
                    "targets": targets,
                    "flows": FLOWS,
                    "port": PORT,
                },
            )
            for place, address in enumerate(joined.addresses)
        ]
        try:
            yield agents[0], agents[1]
        finally:
            for agent in agents:
                agent.end()
            wire.terminate()
            wire.wait(20)
            wire.stdout.close()


def test_a_flow_that_is_lost_is_named_and_the_others_answer() -> None:
    """A grey path: what one source port's way loses, all others do not."""
    lost_flow = 2
    with mesh(str(PORT + 1 + lost_flow), 0) as (one, other):
        other.round()  # from now on it answers
        first = one.round()
        rounds = 3
        for _ in range(rounds - 1):
            last = one.round()
        to = "node-1/rail0"
        assert first[SENT, to] == FLOWS
        assert last[SENT, to] == FLOWS * rounds
        assert last[LOST, to] == rounds
        assert [key for key in last if key[0] == FLOW_LOST] == [(FLOW_LOST, str(lost_flow))]
        assert last[FLOW_LOST, str(lost_flow)] == rounds
        assert 0 < last[ROUND_TRIP, to] < 0.5
        back = other.round()
        assert back["fabric_host_probe_answers_total", "answered"] == (FLOWS - 1) * rounds
        assert back["fabric_host_probe_answers_total", "refused"] == 0


def test_a_share_that_is_lost_is_counted_and_nothing_where_nothing_is() -> None:
    every = 5
    with mesh("", every) as (one, other):
        other.round()
        for _ in range(5):
            last = one.round()
        share = last[LOST, "node-1/rail0"] / last[SENT, "node-1/rail0"]
        # A probe passes the wire twice.
        assert 0.1 < share < 0.7
    with mesh("", 0) as (one, other):
        other.round()
        for _ in range(3):
            last = one.round()
        assert last[LOST, "node-1/rail0"] == 0


def test_the_kernel_counts_no_more_than_a_thousandth_of_the_link_for_a_round() -> None:
    """More probes are wanted than fit; what the interface carried is what the budget says."""
    if why := namespaces.why_not():
        pytest.skip(why)
    rails, flows, interval_s, rounds = 12, 16, 0.25, 4
    assert rails * flows > probes_of_round(LINK_BITS_LEAST, interval_s)
    with namespaces.joined() as joined:
        own, far = joined.addresses[0], [f"10.213.79.{20 + place}" for place in range(rails)]
        for address in far:
            namespaces.run(f"ip -n {joined.names[1]} addr add {address}/24 dev v1")
        common = {"flows": flows, "port": PORT, "interval_seconds": interval_s}
        targets = [f"rail0 node-1-{place} {address}" for place, address in enumerate(far)]
        one = Agent(joined.inside(0), {**common, "rails": [f"rail0 {own}"], "targets": targets})
        listens = {"rails": [f"r{place} {address}" for place, address in enumerate(far)]}
        asks_for = {"targets": [f"r0 node-0 {own}"], "flows": 1}
        other = Agent(joined.inside(1), {**common, **listens, **asks_for})
        try:
            other.round()  # from now on it answers
            one.round()  # from now on both know each other's addresses
            before = counted(joined.names[0], "v0")
            for _ in range(rounds):
                last = one.round()
            frames, octets = counted(joined.names[0], "v0").since(before)
        finally:
            one.end()
            other.end()
    assert sum(last[key] for key in last if key[0] == LOST) == 0, "they were answered"
    bits = (octets + frames * BESIDE_FRAME_BYTES) * 8
    assert 0.9 < bits / (LINK_BITS_LEAST * BUDGET_SHARE * interval_s * rounds) <= 1.0


def test_probes_by_hand_name_the_flow_that_is_lost(tmp_path: Path) -> None:
    """Beside a running agent, through the same wire; the hand's flows have ports of their own."""
    lost_flow = 1
    with mesh(str(PORT + SOURCE_PORTS_BEHIND + lost_flow), 0) as (one, other):
        one.round()
        other.round()
        config = tmp_path / "agent.toml"
        rail = f"rail0 {namespaces.ADDRESSES[0]} v0"
        target = f"rail0 node-1 {namespaces.ADDRESSES[1]}"
        config.write_text(
            f'[sources.probes]\nrails = ["{rail}"]\ntargets = ["{target}"]\nport = {PORT}\n'
        )
        words = ["probe", "node-1", "--config", str(config), "--count", "3", "--json"]
        begin = "import sys; from collector.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [*one.inside, sys.executable, "-c", begin, *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=False)
        assert done.returncode == 1, done.stderr.decode()
        ways = json.loads(done.stdout)
        assert [way["lost"] for way in ways] == [0, 3, 0, 0]
        assert [way["sent"] for way in ways] == [3] * FLOWS
        assert all(0 < way["median_s"] < 0.5 for way in ways if not way["lost"])
        table = lines_of([Way(**way) for way in ways])
        assert [line.split()[3:] for line in table][2] == ["3/3", "no", "answer"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["node-1"], "no rail of this host"),
        (["node-1", "--count", "0"], "from 1 to"),
    ],
)
def test_probes_by_hand_that_cannot_be_sent_say_why(words: list[str], why: str) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(SettingsError, match=why):
        run(parser.parse_args(words))


# --- without namespaces ---------------------------------------------------------------------------


def plan(*peers: str) -> Plan:
    return Plan(rails={"r": "127.0.0.1"}, peers=frozenset(peers), port=free_port(), flows=1)


def test_only_members_of_the_mesh_are_answered_and_never_with_more_bytes() -> None:
    made = plan("127.0.0.2")
    prober = LiveProber(made)
    with contextlib.closing(prober), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.bind(("127.0.0.1", 0))
        asker.sendto(encode(Probe(REQUEST, 0, 1, 2)), ("127.0.0.1", made.port))
        eventually(lambda: prober.answers.refused == 1, "the stranger's probe")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as member:
            member.bind(("127.0.0.2", 0))
            member.settimeout(20)
            for data in (b"", b"x" * BYTES, encode(Probe(REQUEST, 0, 1, 2)) + b"x"):
                member.sendto(data, ("127.0.0.1", made.port))
            member.sendto(encode(Probe(REQUEST, 0, 7, 9)), ("127.0.0.1", made.port))
            answer = member.recv(BYTES * 2)
        assert len(answer) == BYTES
        found = decode(answer)
        assert found is not None
        assert (found.sequence, found.nonce) == (7, 9)
        eventually(lambda: prober.answers.answered == 1, "the count of it")
        assert prober.answers.refused == 4


def test_an_agent_that_holds_thousands_of_files_probes_all_the_same() -> None:
    """Descriptors above 1023: select(2) knows none of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2_000:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_000), hard))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1_100)]
    try:
        with contextlib.closing(LiveProber(plan("127.0.0.1"))) as prober:
            (trip_ns,) = prober.round([Sending("r", "127.0.0.1", 0)], 20.0)
        assert trip_ns is not None
        assert prober.answers.answered == 1
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_forged_answer_is_none() -> None:
    """Another one that listens at the target's address answers with a nonce that is not ours."""
    made = plan("127.0.0.1")
    prober = LiveProber(made)
    with contextlib.closing(prober), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
        forger.bind(("127.0.0.3", made.port))
        forger.sendto(encode(Probe(2, 0, 0, 1)), ("127.0.0.1", made.port + 1))
        assert prober.round([Sending("r", "127.0.0.3", 0)], 0.2) == [None]
        (trip_ns,) = prober.round([Sending("r", "127.0.0.1", 0)], 5.0)
        assert trip_ns is not None
        assert 0 < trip_ns < 5_000_000_000


def test_a_port_that_is_taken_is_an_absence_with_its_reason() -> None:
    made = plan("127.0.0.1")
    with contextlib.closing(LiveProber(made)), pytest.raises(HostError, match="in use"):
        Host().prober(made)
    rails, targets = ("r 127.0.0.1",), ("r other 127.0.0.9",)
    source = SOURCE(Settings(rails=rails, targets=targets, port=made.port, flows=1))
    with contextlib.closing(LiveProber(made)):
        (missing,) = source.read(Host())
    assert isinstance(missing, Missing)
    assert "in use" in missing.detail


def test_a_round_costs_a_thousandth_of_a_link_and_every_pair_has_its_turn(
    tmp_path: Path,
) -> None:
    for link_bits in (10_000_000, 1_000_000_000, 400_000_000_000):
        sent_bits = probes_of_round(link_bits, 5.0) * WIRE_BYTES * 8
        assert 2 * sent_bits <= link_bits * BUDGET_SHARE * 5.0
    (tmp_path / "sys/class/net/eth0").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth0/speed").write_text("10\n")  # Mb/s
    (tmp_path / "probes").mkdir()
    (tmp_path / "probes/answers.json").write_text("{}")
    targets = tuple(f"r host-{place} 10.0.1.{place}" for place in range(40))
    source = SOURCE(Settings(rails=("r 10.0.0.1 eth0",), targets=targets, flows=2))
    sent = 0.0
    for _ in range(4):
        readings = [each for each in source.read(Host(tmp_path)) if isinstance(each, Sample)]
        before, sent = sent, sum(each.value for each in readings if each.series.metric == SENT)
        assert 0 < sent - before <= probes_of_round(10_000_000, 5.0) < 40
    assert sum(each.series.metric == SENT for each in readings) == 40, "each had its turn"


@pytest.mark.parametrize(
    "wrong",
    [
        {"rails": ("r",)},
        {"networks": ("10.0.0.1/8",)},
        {"networks": ("everywhere",)},
        {"rails": ("r 10.0.0.256",)},
        {"targets": ("r host",)},
        {"targets": ("r host not-an-address",)},
        {"targets": ("r h 10.0.0.1",) * (TARGETS_MAX + 1)},
    ],
)
def test_settings_that_cannot_be_meant_name_the_line(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="probes: "):
        SOURCE(Settings(**wrong))


@given(st.binary(max_size=2 * BYTES))
def test_any_datagram_is_a_probe_or_none(data: bytes) -> None:
    found = decode(data)
    assert found is None or decode(encode(found)) == found
