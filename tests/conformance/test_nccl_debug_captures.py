"""Rings and trees of real runs, where their captures lie beside the repository.

What the format says is compared with the lines themselves, read by another, simpler way.
"""

import io
import re

import pytest

from collector.contract.communicator import communicator_rings, communicator_trees
from collector.contract.model import Event
from collector.formats import Origin
from collector.formats.nccl_debug import FORMAT
from tests.tools.captures import RINGS

RUNS = sorted(path.parent.name for path in RINGS.glob("*/nccl_debug"))

pytestmark = pytest.mark.skipif(not RUNS, reason="no captures beside the repository")


def events_of(run: str, kind: str = "communicator") -> list[Event]:
    found = []
    for path in sorted((RINGS / run / "nccl_debug").glob("*.log")):
        for each in FORMAT.parse(io.BytesIO(path.read_bytes()), Origin(path.name, 1)):
            assert isinstance(each, Event), each
            found.append(each)
    return [each for each in found if each.kind == kind]


def initialisations(run: str) -> list[tuple[str, int, str]]:
    """Communicator, rank and text between START and COMPLETE; one thread writes in each log."""
    pattern = r"rank (\d+) nranks [^\n]* commId (0x\w{14})\w* - Init START(.*?)Init COMPLETE"
    return [
        (match[2], int(match[1]), match[3])
        for path in (RINGS / run / "nccl_debug").glob("*.log")
        for match in re.finditer(pattern, path.read_text("utf-8"), re.DOTALL)
    ]


@pytest.mark.parametrize("run", RUNS)
def test_every_rank_of_every_communicator_comes_once(run: str) -> None:
    labels = [(each.labels["communicator"], int(each.labels["rank"])) for each in events_of(run)]
    assert sorted(labels) == sorted((name, rank) for name, rank, _ in initialisations(run))
    if run.startswith("groups"):
        sizes = sorted(each.attributes["ranks"] for each in events_of(run))
        assert sizes == ["2"] * 8 + ["4"] * 8 + ["8"] * 8
    else:
        assert len(labels) == 8


@pytest.mark.parametrize("run", RUNS)
def test_rings_are_as_rank_0_prints_them(run: str) -> None:
    printed = {
        name: [
            [int(rank) for rank in ring.split()]
            for ring in re.findall(r"Channel \d\d/\d\d :([ \d]+)\n", text)
        ]
        for name, rank, text in initialisations(run)
        if rank == 0
    }
    assert communicator_rings(events_of(run)) == printed


@pytest.mark.parametrize("run", RUNS)
def test_rings_are_the_same_from_the_neighbours_alone(run: str) -> None:
    events = events_of(run)
    whole = communicator_rings(events)
    for each in events:
        each.attributes.pop("rings", None)
    assert communicator_rings(events) == whole


@pytest.mark.parametrize("run", RUNS)
def test_trees_are_as_each_rank_prints_them(run: str) -> None:
    printed: dict[str, list[dict[int, int | None]]] = {}
    for name, rank, text in initialisations(run):
        trees = printed.setdefault(name, [{}, {}])
        for channel, parent in re.findall(r"NCCL INFO Tree (\d) : (-?\d+) ->", text):
            trees[int(channel)][rank] = int(parent) if int(parent) >= 0 else None
    assert communicator_trees(events_of(run)) == printed


@pytest.mark.parametrize("run", RUNS)
def test_hosts_and_devices_are_known(run: str) -> None:
    for each in events_of(run):
        assert each.attributes["devices"] == "eth0"
        assert re.fullmatch(r"node[0-7]", each.attributes["host"])
        assert each.attributes["bus_id"] == "0000:00:06.0"
        assert each.attributes["nodes"] == each.attributes["ranks"]


@pytest.mark.parametrize("run", RUNS)
def test_every_host_says_its_settings(run: str) -> None:
    found = events_of(run, "nccl_settings")
    assert sorted(each.attributes["host"] for each in found) == [f"node{n}" for n in range(8)]
    for each in found:
        assert each.attributes["NCCL_SOCKET_IFNAME"] == "eth0"
        assert each.attributes["nic_rate.0-0"] == "1250000000"
