"""The `ib_fabric` source on answers by recipe: time, ends of counters, names, and refusals."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.commands import Output
from collector.reading.infiniband import FORGET_SECONDS
from collector.sources.ib_fabric import DETAILS_MAX, IbFabric, Settings
from collector.tables.infiniband_switches import COUNTERS
from tests.doubles.fakes import HandHost

LEAF, SPINE, OTHER = "0x00000000000000a1", "0x00000000000000b1", "0x00000000000000c1"
QUANTUM_2, SWITCH_IB = 0xD2F2, 0xCB20
WAITED = "fabric_port_transmit_wait_seconds_total"
TICKED = "fabric_port_transmit_wait_ticks_total"
SILENCE = b"ibwarn: [1] mad_rpc: _do_madrpc failed; dport (Lid 1)\n"
FAR = f'{SPINE} 2 9[  ] "spine" ( )'

Recipe = Callable[[list[str]], Output]


class Machine(HandHost):
    """A host whose programs answer by a recipe; it remembers what was asked."""

    def __init__(self, root: Path, answer: Recipe) -> None:
        super().__init__(root)
        self.answer = answer
        self.asked: list[str] = []
        self.seconds: list[float] = []

    def run(
        self, words: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
    ) -> Output:
        del environment
        plain = [word for word in words if word not in {"-t", "200"}]
        self.asked.append(" ".join(plain))
        self.seconds.append(seconds)
        return self.answer(plain)

    def started(self, beginning: str) -> list[str]:
        return [each for each in self.asked if each.startswith(beginning)]


MANAGER = (
    "sminfo: sm lid 9 sm guid 0x1070fd0300a1c2e0, activity count 48210 priority 15"
    " state 3 SMINFO_MASTER\n"
)


class Switchboard:
    """A fabric of some switches with the answers that a test sets."""

    def __init__(self) -> None:
        self.lanes, self.speed, self.state = 4, "106.25 Gbps", "Active"
        self.names = {LEAF: "leaf", SPINE: "spine"}
        self.devices = {LEAF: QUANTUM_2, SPINE: QUANTUM_2}
        self.counters: dict[tuple[int, int], dict[str, int]] = {}
        self.capabilities, self.has_errors = 0x5300, True
        self.tick: int | None = None
        self.silent: set[int] = set()

    def lid(self, guid: str) -> int:
        return [LEAF, SPINE, OTHER].index(guid) + 1

    def __call__(self, words: list[str]) -> Output:
        text = ""
        match words:
            case ["iblinkinfo", *_]:
                text = "".join(self.links())
            case ["sminfo"]:
                text = MANAGER
            case ["ibnetdiscover"]:
                text = "".join(self.nodes())
            case ["perfquery", "-x", "-l", lid, ports]:
                return self.blocks(int(lid), ports, is_extended=True)
            case ["perfquery", "-l", lid, ports]:
                return self.blocks(int(lid), ports, is_extended=False)
            case ["perfquery", "-c", lid, port] if self.tick is not None:
                text = f"# PortSamplesControl: Lid {lid} port {port}\nTick:.......{self.tick:#x}\n"
            case ["perfquery", "-D", lid, port]:
                text = f"# PortXmitDiscardDetails counters: Lid {lid} port {port}\n"
                text += "PortSwHOQLifetimeLimitDiscards:..9\n"
        return Output(text.encode(), b"" if text else SILENCE, 0 if text else 255)

    def links(self) -> list[str]:
        how = f"{self.lanes}X {self.speed} {self.state}/LinkUp"
        return [
            f'{guid} "{name}" {self.lid(guid)} {port}[  ] ==( {how})==>  {FAR}\n'
            for guid, name in self.names.items()
            for port in (1, 2)
        ]

    def nodes(self) -> list[str]:
        return [
            f"vendid=0x2c9\ndevid={self.devices[guid]:#x}\nswitchguid={guid}({guid[2:]})\n"
            f'Switch\t2 "S-{guid[2:]}"\t\t# "{name}" enhanced port 0 lid 1 lmc 0\n\n'
            for guid, name in self.names.items()
        ]

    def blocks(self, lid: int, ports: str, *, is_extended: bool) -> Output:
        if lid in self.silent:
            return Output(b"", SILENCE, 255)
        text = ""
        for port in map(int, ports.split(",")):
            values = self.counters.get((lid, port), {})
            kind = "extended counters" if is_extended else "counters"
            mask2 = " CapMask2: 0x0000002" if is_extended else ""
            text += (
                f"# Port {kind}: Lid {lid} port {port} (CapMask: {self.capabilities:#x}{mask2})\n"
            )
            names = [
                name for name in COUNTERS if self.has_errors or not is_extended or "Data" in name
            ]
            text += "".join(f"{name}:....{values.get(name, 0)}\n" for name in names)
        return Output(text.encode())


@pytest.fixture
def board() -> Switchboard:
    return Switchboard()


@pytest.fixture
def machine(tmp_path: Path, board: Switchboard) -> Machine:
    return Machine(tmp_path, board)


def make(**settings: object) -> IbFabric:
    return IbFabric(Settings(enabled=True, **settings))  # type: ignore[arg-type]


def slowly(machine: Machine, answer: Recipe, seconds: float) -> Recipe:
    """The same answers, each after so many seconds."""

    def late(words: list[str]) -> Output:
        machine.clock.advance(seconds)
        return answer(words)

    return late


def values(readings: list[Reading], metric: str) -> dict[tuple[str, str], float]:
    """Values of a metric by host and port."""
    found = {}
    for each in readings:
        if isinstance(each, Sample) and each.series.metric == metric:
            labels = dict(each.series.labels)
            found[labels.get("host", ""), labels.get("port", "")] = each.value
    return found


def reasons(readings: list[Reading], metric: str) -> dict[tuple[str, str], UnreadReason]:
    found = {}
    for each in readings:
        if isinstance(each, Missing) and each.series.metric == metric:
            labels = dict(each.series.labels)
            found[labels.get("host", ""), labels.get("port", "")] = each.reason
    return found


def read(source: IbFabric, machine: Machine, after: float = 10.0) -> list[Reading]:
    machine.clock.advance(after)
    machine.asked.clear()
    return list(source.read(machine))


# --- whether it asks at all ----------------------------------------------------------------------


def test_it_is_off_unless_enabled(machine: Machine) -> None:
    assert list(IbFabric(Settings()).read(machine)) == []
    assert machine.asked == []


def test_a_host_without_the_programs_reports_it(machine: Machine) -> None:
    def refuse(words: list[str]) -> Output:
        raise HostError(UnreadReason.ABSENT, words[0], "there is no such program on this machine")

    machine.answer = refuse
    readings = read(make(), machine)
    assert reasons(readings, "fabric_subnet_scans_total") == {("", ""): UnreadReason.ABSENT}
    assert values(readings, "fabric_subnet_switches") == {("", ""): 0}


def test_a_fabric_that_may_not_be_asked_is_unreadable(machine: Machine) -> None:
    machine.answer = lambda _: Output(b"", b"ibwarn: [7] can't open UMAD port ((null):0)\n", 1)
    absences = [each for each in read(make(), machine) if isinstance(each, Missing)]
    assert {each.reason for each in absences} == {UnreadReason.UNREADABLE}
    assert {each.detail for each in absences} == {
        "iblinkinfo: can't open UMAD port ((null):0)",
        "sminfo: can't open UMAD port ((null):0)",
    }


def test_programs_go_through_the_hca_that_is_named(machine: Machine) -> None:
    read(make(through=("mlx5_0:1", "mlx5_4")), machine)
    assert "iblinkinfo -C mlx5_0 -P 1 -l --switches-only" in machine.asked
    assert "iblinkinfo -C mlx5_4 -l --switches-only" in machine.asked


def test_a_fabric_that_is_reached_twice_is_read_once(machine: Machine) -> None:
    readings = [
        each
        for each in read(make(through=("mlx5_0", "mlx5_1")), machine)
        if isinstance(each, Sample | Missing)
    ]
    series = [each.series for each in readings]
    assert len(series) == len(set(series))


# --- how often it asks ---------------------------------------------------------------------------


def test_wide_error_counters_need_no_second_question(machine: Machine, board: Switchboard) -> None:
    source = make()
    read(source, machine)
    assert machine.started("perfquery -l") == []
    board.has_errors = False
    read(source, machine)
    assert len(machine.started("perfquery -l")) == 2


def test_nodes_are_looked_up_once(machine: Machine) -> None:
    source = make(topology_seconds=0)
    read(source, machine)
    assert "ibnetdiscover" in machine.asked
    read(source, machine)
    assert "ibnetdiscover" not in machine.asked
    assert machine.started("iblinkinfo")


def test_a_slow_scan_is_not_repeated_at_every_read(machine: Machine, board: Switchboard) -> None:
    late = slowly(machine, board, 2.0)
    machine.answer = lambda words: late(words) if words[0] == "iblinkinfo" else board(words)
    source = make(topology_seconds=60)
    read(source, machine)
    assert [bool(read(source, machine) and machine.started("iblinkinfo")) for _ in range(7)] == [
        False,
        False,
        False,
        False,
        False,
        True,
        False,
    ]


def test_a_link_that_went_down_in_between_is_looked_at_at_once(
    machine: Machine, board: Switchboard
) -> None:
    machine.answer = slowly(machine, board, 1.0)
    source = make(topology_seconds=600)
    read(source, machine)
    board.counters[1, 2] = {"LinkDownedCounter": 1}
    read(source, machine)
    assert not machine.started("iblinkinfo")
    read(source, machine)
    assert machine.started("iblinkinfo")
    read(source, machine)
    assert not machine.started("iblinkinfo")


def test_no_program_gets_more_time_than_is_left(machine: Machine, board: Switchboard) -> None:
    machine.answer = slowly(machine, board, 1.5)
    readings = read(make(processes=1, timeout_seconds=5.0), machine)
    assert all(seconds <= 4.5 for seconds in machine.seconds)
    assert machine.seconds == sorted(machine.seconds, reverse=True)
    assert len(machine.asked) == 3
    assert values(readings, "fabric_switch_up") == {("leaf", ""): 1, ("spine", ""): 0}
    assert reasons(readings, "fabric_switch_poll_values") == {("spine", ""): UnreadReason.TIMEOUT}


def test_who_got_no_time_comes_first_the_next_time(machine: Machine, board: Switchboard) -> None:
    source = make(processes=1, timeout_seconds=5.0, topology_seconds=600)
    machine.answer = slowly(machine, board, 1.5)
    read(source, machine)
    source._fabrics[""].fabric.is_suspect = False  # a scan would take the time that this is about
    read(source, machine)
    assert machine.asked[0] == "perfquery -x -l 2 1,2"


# --- partial answers -----------------------------------------------------------------------------


def test_a_silent_switch_has_one_absence_and_its_neighbours_none(
    machine: Machine, board: Switchboard
) -> None:
    source = make()
    read(source, machine)
    board.silent.add(2)
    readings = read(source, machine)
    missing = [each for each in readings if isinstance(each, Missing)]
    assert [(each.series.metric, each.reason) for each in missing] == [
        ("fabric_switch_poll_values", UnreadReason.TIMEOUT)
    ]
    assert set(values(readings, "fabric_port_symbol_errors_total")) == {
        ("leaf", "1"),
        ("leaf", "2"),
    }
    # Its links are seen by the scan all the same.
    assert values(readings, "fabric_port_state")["spine", "1"] == 4


def test_a_silent_switch_is_asked_once_a_read(machine: Machine, board: Switchboard) -> None:
    board.silent.add(2)
    board.has_errors = False
    read(make(), machine)
    to_spine = [each for each in machine.started("perfquery") if " 2 1,2" in each]
    assert to_spine == ["perfquery -x -l 2 1,2"]


def test_ports_that_perfquery_left_out_are_asked_for_again(
    machine: Machine, board: Switchboard
) -> None:
    def stumble(words: list[str]) -> Output:
        if words == ["perfquery", "-x", "-l", "1", "1,2"]:
            whole = board.blocks(1, "1", is_extended=True)
            return whole._replace(complaints=b"_do_madrpc failed", status=255)
        return board(words)

    machine.answer = stumble
    readings = read(make(), machine)
    assert "perfquery -x -l 1 2" in machine.asked
    assert ("leaf", "2") in values(readings, "fabric_port_transmit_bytes_total")
    assert not [each for each in readings if isinstance(each, Missing)]


def test_half_a_number_is_no_number(machine: Machine, board: Switchboard) -> None:
    board.counters[1, 2] = {"PortXmitWait": 123456}

    def cut(words: list[str]) -> Output:
        whole = board(words)
        is_one = words[:4] == ["perfquery", "-x", "-l", "1"]
        return Output(whole.text[:-4], is_cut=True, status=-15) if is_one else whole

    machine.answer = cut
    readings = read(make(), machine)
    assert ("leaf", "2") not in values(readings, TICKED)
    assert reasons(readings, TICKED)["leaf", "2"] is UnreadReason.TIMEOUT
    assert values(readings, TICKED)["leaf", "1"] == 0


def test_a_switch_that_is_gone_is_down_for_an_hour_and_then_forgotten(
    machine: Machine, board: Switchboard
) -> None:
    source = make(topology_seconds=0)
    read(source, machine)
    del board.names[SPINE]
    board.silent.add(2)
    readings = read(source, machine)
    assert values(readings, "fabric_switch_up") == {("leaf", ""): 1, ("spine", ""): 0}
    assert ("spine", "1") not in values(readings, "fabric_port_state")
    readings = read(source, machine, after=FORGET_SECONDS + 1)
    assert values(readings, "fabric_switch_up") == {("leaf", ""): 1}


# --- the time that ports have waited -------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "tick", "seconds"),
    [
        # 4 lanes of 100 Gb/s: 50 GB/s. Quantum: tick + 1 bytes; Switch-IB: of each lane.
        (QUANTUM_2, None, 1e9 * 8 / 50e9),
        (QUANTUM_2, 15, 1e9 * 16 / 50e9),
        (SWITCH_IB, None, 1e9 * 32 * 4 / 50e9),
        (SWITCH_IB, 7, 1e9 * 8 * 4 / 50e9),
    ],
)
def test_a_tick_is_as_long_as_the_chip_reports(
    machine: Machine, board: Switchboard, device: int, tick: int | None, seconds: float
) -> None:
    board.devices[LEAF], board.tick = device, tick
    board.counters[1, 1] = {"PortXmitWait": 10**9}
    waited = values(read(make(), machine), WAITED)
    assert waited["leaf", "1"] == pytest.approx(seconds)


def test_ticks_of_an_unknown_chip_are_only_ticks(machine: Machine, board: Switchboard) -> None:
    board.devices[LEAF] = 0x1234
    readings = read(make(), machine)
    assert reasons(readings, WAITED)["leaf", "1"] is UnreadReason.NOT_SUPPORTED
    assert values(readings, TICKED)["leaf", "1"] == 0
    assert ("spine", "1") in values(readings, WAITED)


def test_a_link_that_comes_up_slower_does_not_change_what_was_waited(
    machine: Machine, board: Switchboard
) -> None:
    source = make(topology_seconds=0)
    board.counters[1, 1] = {"PortXmitWait": 10**9}
    before = values(read(source, machine), WAITED)["leaf", "1"]
    board.lanes = 1
    assert values(read(source, machine), WAITED)["leaf", "1"] == before
    board.counters[1, 1] = {"PortXmitWait": 2 * 10**9}
    after = values(read(source, machine), WAITED)["leaf", "1"]
    assert after - before == pytest.approx(4 * before)


def test_a_counter_that_was_reset_goes_on_from_zero(machine: Machine, board: Switchboard) -> None:
    source = make()
    board.counters[1, 1] = {"PortXmitWait": 10**9}
    before = values(read(source, machine), WAITED)["leaf", "1"]
    board.counters[1, 1] = {"PortXmitWait": 10**8}
    readings = read(source, machine)
    assert values(readings, TICKED)["leaf", "1"] == 10**8
    assert values(readings, WAITED)["leaf", "1"] == pytest.approx(before * 1.1)


def test_what_was_waited_goes_on_over_a_restart(machine: Machine, board: Switchboard) -> None:
    first = make(topology_seconds=0)
    board.counters[1, 1] = {"PortXmitWait": 10**9}
    read(first, machine)
    board.lanes = 1  # from here on a tick is worth four times as much
    board.counters[1, 1] = {"PortXmitWait": 2 * 10**9}
    before = values(read(first, machine), WAITED)["leaf", "1"]
    second = make()
    second.load_state({"": {place: list(each) for place, each in first.save_state()[""].items()}})
    assert values(read(second, machine), WAITED)["leaf", "1"] == before


def test_a_state_of_another_shape_is_ignored(machine: Machine) -> None:
    source = make()
    source.load_state({"": {f"{LEAF}/1": [-1, "x"], "?": 7}, "mlx5_9": {}, "other": 3})
    assert values(read(source, machine), WAITED)["leaf", "1"] == 0


def test_a_wait_that_is_not_counted_is_not_zero(machine: Machine, board: Switchboard) -> None:
    board.capabilities = 0x0300
    readings = read(make(), machine)
    assert reasons(readings, TICKED)["leaf", "1"] is UnreadReason.NOT_SUPPORTED
    assert values(readings, TICKED) == {}


def test_numbers_are_read_as_narrow_where_the_port_has_no_wide_ones(
    machine: Machine, board: Switchboard
) -> None:
    board.capabilities = 0x1100  # neither bit 9 nor bit 10
    board.counters[1, 1] = {"PortXmitData": (1 << 32) - 1, "SymbolErrorCounter": 65_535}
    readings = read(make(), machine)
    assert reasons(readings, "fabric_port_transmit_bytes_total") == {
        ("leaf", "1"): UnreadReason.SATURATED
    }
    assert reasons(readings, "fabric_port_symbol_errors_total") == {
        ("leaf", "1"): UnreadReason.SATURATED
    }


# --- discards ------------------------------------------------------------------------------------


def test_discards_are_looked_into_once_for_each_number(
    machine: Machine, board: Switchboard
) -> None:
    source, metric = make(), "fabric_port_transmit_lifetime_discards_total"
    assert read(source, machine)
    assert machine.started("perfquery -D") == []
    board.counters[2, 1] = {"PortXmitDiscards": 12}
    assert values(read(source, machine), metric) == {("spine", "1"): 9}
    assert machine.started("perfquery -D") == ["perfquery -D 2 1"]
    assert values(read(source, machine), metric) == {("spine", "1"): 9}
    assert machine.started("perfquery -D") == []
    board.counters[2, 1] = {"PortXmitDiscards": 13}
    read(source, machine)
    assert machine.started("perfquery -D") == ["perfquery -D 2 1"]


def test_a_switch_that_refuses_details_is_left_alone_for_a_while(
    machine: Machine, board: Switchboard
) -> None:
    board.counters[2, 1] = {"PortXmitDiscards": 12}
    machine.answer = lambda words: (
        Output(b"", b"iberror: failed: cannot query\n", 1) if "-D" in words else board(words)
    )
    source = make()
    readings = read(source, machine)
    assert reasons(readings, "fabric_port_transmit_inactive_discards_total") == {
        ("spine", "1"): UnreadReason.UNREADABLE
    }
    board.counters[2, 1] = {"PortXmitDiscards": 13}
    read(source, machine)
    assert machine.started("perfquery -D") == []
    read(source, machine, after=601)
    assert len(machine.started("perfquery -D")) == 1


def test_so_many_processes_for_details_and_no_more(tmp_path: Path, board: Switchboard) -> None:
    ports = range(1, 2 * DETAILS_MAX)
    board.links = lambda: [  # type: ignore[method-assign]
        f'{LEAF} "leaf" 1 {port}[  ] ==( 4X 53.125 Gbps Active/LinkUp)==>  [  ] "" ( )\n'
        for port in ports
    ]
    board.counters = {(1, port): {"PortXmitDiscards": 5} for port in ports}
    machine, source = Machine(tmp_path, board), make()
    read(source, machine)
    first = set(machine.started("perfquery -D"))
    assert len(first) == DETAILS_MAX
    read(source, machine)
    rest = set(machine.started("perfquery -D"))
    assert len(first | rest) == len(ports)


# --- names ---------------------------------------------------------------------------------------


def test_a_name_map_names_switches(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "names").write_text(f'# a comment\n{SPINE} "row 7 spine"\n0xzz "broken"\n')
    readings = read(make(node_name_map="/names"), machine)
    assert set(values(readings, "fabric_switch_up")) == {("leaf", ""), ("row 7 spine", "")}
    links = [
        dict(each.series.labels)
        for each in readings
        if isinstance(each, Sample) and each.series.metric == "fabric_link_info"
    ]
    assert {labels["peer_name"] for labels in links} == {"row 7 spine"}


def test_two_switches_of_one_name_are_called_by_their_guids(
    machine: Machine, board: Switchboard
) -> None:
    board.names = {LEAF: "sw", SPINE: "sw", OTHER: "MF0;core:MQM9700/U1"}
    board.devices[OTHER] = QUANTUM_2
    readings = read(make(), machine)
    assert set(values(readings, "fabric_switch_up")) == {(LEAF, ""), (SPINE, ""), ("core", "")}


def test_a_switch_that_calls_itself_by_the_guid_of_another_is_not_believed(
    machine: Machine, board: Switchboard
) -> None:
    board.names = {LEAF: SPINE, SPINE: ""}
    readings = read(make(), machine)
    assert set(values(readings, "fabric_switch_up")) == {(LEAF, ""), (SPINE, "")}


def test_a_switch_that_changes_its_name_gets_new_series(
    machine: Machine, board: Switchboard
) -> None:
    source = make(topology_seconds=0)
    read(source, machine)
    board.names[LEAF] = "leaf-17"
    readings = read(source, machine)
    assert set(values(readings, "fabric_port_state")) == {
        ("leaf-17", "1"),
        ("leaf-17", "2"),
        ("spine", "1"),
        ("spine", "2"),
    }


def test_a_scan_without_a_name_keeps_the_one_that_is_known(
    machine: Machine, board: Switchboard
) -> None:
    source = make(topology_seconds=0)
    read(source, machine)
    board.names[LEAF] = ""
    readings = read(source, machine)
    assert set(values(readings, "fabric_switch_up")) == {("leaf", ""), ("spine", "")}
