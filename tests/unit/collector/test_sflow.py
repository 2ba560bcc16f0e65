"""sFlow: datagrams made word by word from the specification, odd ones, and a socket of our own."""

import random
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from collector.contract.drop_reasons import REASONS, is_detail
from collector.contract.errors import ParseError, SettingsError
from collector.contract.model import Event, Missing, Reading, Sample
from collector.doors.host import Host
from collector.doors.udp import parse_recorded
from collector.parsing.sflow import SAMPLES_MAX, Discard, Flow, parse_datagram
from collector.sources.sflow import Settings, Sflow, SflowSwitch
from collector.switches import drops as drops_module
from collector.switches import talkers as talkers_module
from collector.switches.drops import Drops
from collector.switches.talkers import AGAIN_SECONDS, Talkers
from tests.stands.ports import free_port

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures/sources/sflow/open_vswitch/tree/udp"
AGENT = "192.0.2.250"
GIGABIT = 10**9
NOTICES = "fabric_switch_drop_notices_total"


def words(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}I", *numbers)


def opaque(data: bytes) -> bytes:
    return words(len(data)) + data + bytes(-len(data) % 4)


def ipv4(source: str, destination: str, *, tags: int = 0) -> bytes:
    ends = socket.inet_aton(source) + socket.inet_aton(destination)
    packet = bytes([0x45, 0]) + struct.pack(">H", 1486) + bytes(8) + ends
    return bytes(12) + b"\x81\x00\x00\x03" * tags + b"\x08\x00" + packet


def header(frame: bytes, length: int = 1500) -> bytes:
    return words(1) + opaque(words(1, length, 4) + opaque(frame))


def flow(
    *records: bytes, rate: int = 1000, at: int = 7, came: int = 7, went: int = 9, wide: bool = False
) -> bytes:
    ends = words(0, at) if wide else words(at)
    interfaces = words(0, came, went >> 30, went & 0x3FFFFFFF) if wide else words(came, went)
    body = words(1) + ends + words(rate, 0, 0) + interfaces + words(len(records))
    return words(3 if wide else 1) + opaque(body + b"".join(records))


def discard(
    *records: bytes,
    came: int = 7,
    leaves: int = 9,
    reason: int = 259,
    untold: int = 0,
    part: int = 1,
) -> bytes:
    """`discarded_packet` of the document "sFlow Dropped Packet Notification Structures"."""
    body = words(1, 0, part, untold, came, leaves, reason, len(records))
    return words(5) + opaque(body + b"".join(records))


def counters(index: int, octets: int, *, speed: int = GIGABIT, name: str = "") -> bytes:
    generic = struct.pack(
        ">IIQIIQIIIIIIQIIIIII",
        index, 6, speed, 1, 3, octets, 11, 12, 13, 14, 15, 16, octets + 1, 21, 22, 23, 24,
        (1 << 32) - 1, 0,
    )  # fmt: skip
    records = words(1) + opaque(generic)
    if name:
        records += words(1005) + opaque(opaque(name.encode()))
    return words(2) + opaque(words(1, index, 1 + bool(name)) + records)


def datagram(*samples: bytes, sequence: int = 1, uptime: int = 1000, agent: str = AGENT) -> bytes:
    head = words(5, 1) + socket.inet_aton(agent) + words(0, sequence, uptime, len(samples))
    return head + b"".join(samples)


# --- datagrams -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("tags", [0, 1, 2])
def test_a_packet_s_header_is_read(wide: bool, tags: int) -> None:  # noqa: FBT001 - parameters
    sample = flow(header(ipv4("198.51.100.1", "198.51.100.2", tags=tags)), wide=wide)
    found = parse_datagram(datagram(sample))
    assert (found.agent, found.sequence, found.broken) == (AGENT, 1, 0)
    assert found.flows == [Flow("198.51.100.1", "198.51.100.2", 1500, 1000, 7, 7, 9, False)]


def test_a_packet_that_the_switch_took_apart_is_read() -> None:
    ends = socket.inet_aton("198.51.100.1") + socket.inet_aton("198.51.100.2")
    record = words(3) + opaque(words(1486, 17) + ends + words(4791, 4791, 0, 0))
    (found,) = parse_datagram(datagram(flow(record))).flows
    assert found[:3] == ("198.51.100.1", "198.51.100.2", 1486)


@pytest.mark.parametrize(
    ("went", "output", "is_dropped"),
    [(9, 9, False), (1 << 30 | 256, 0, True), (2 << 30 | 4, 0, False), (0x3FFFFFFF, 0, False)],
)
def test_where_a_packet_went(went: int, output: int, is_dropped: bool) -> None:  # noqa: FBT001 - as above
    (found,) = parse_datagram(datagram(flow(went=went))).flows
    assert (found.output, found.is_dropped) == (output, is_dropped)


def test_a_dropped_packet_is_read_with_its_flow_its_queue_and_its_reason() -> None:
    sample = discard(header(ipv4("192.0.2.1", "192.0.2.9")), words(1036) + opaque(words(3)))
    found = parse_datagram(datagram(sample, discard(leaves=0, reason=258, untold=4)))
    assert found.flows == []
    assert found.discards == [
        Discard("192.0.2.1", "192.0.2.9", 7, 9, 259, 3, "", (0, 1), 0),
        Discard("", "", 7, 0, 258, None, "", (0, 1), 4),
    ]


def acl(number: int, name: bytes) -> bytes:
    return words(1037) + opaque(words(number) + opaque(name) + words(2))


FUNCTION = words(1038) + opaque(opaque(b"nf_hook_slow"))
TRAP = words(1041) + opaque(opaque(b"buffer_drops") + opaque(b"tail_drop"))
GROUP = words(1041) + opaque(opaque(b"buffer_drops") + opaque(b""))
LINUX = words(1042) + opaque(opaque(b"SOCKET_RCVBUFF"))


@pytest.mark.parametrize(
    ("records", "detail"),
    [
        ((FUNCTION,), "function:nf_hook_slow"),
        ((FUNCTION, LINUX), "linux:SOCKET_RCVBUFF"),
        ((LINUX, TRAP), "trap:tail_drop"),
        ((GROUP,), "trap:buffer_drops"),
        ((TRAP, acl(42, b"deny storage")), "acl:deny_storage"),
        ((acl(42, b""),), "acl:42"),
        ((acl(42, b"<b>=1 x\xff\n" + b"y" * 99),), "acl:_b__1_x_" + "y" * 56),
        ((words(1042) + opaque(opaque(b"")),), ""),
    ],
)
def test_what_dropped_a_packet_is_named_by_its_most_telling_record(
    records: tuple[bytes, ...], detail: str
) -> None:
    (found,) = parse_datagram(datagram(discard(*records))).discards
    assert found.detail == detail
    assert is_detail(detail) == bool(detail)


def test_a_record_that_is_cut_off_takes_its_notice_with_it() -> None:
    cut = words(1041) + opaque(opaque(b"buffer_drops"))
    found = parse_datagram(datagram(discard(cut), discard(TRAP)))
    assert (len(found.discards), found.broken) == (1, 1)


def test_reasons_are_those_of_the_document_and_of_host_sflow() -> None:
    wanted = {
        15: "precedence_cutoff", 33: "dev_hdr", 36: "tc_egress", 256: "unknown",
        259: "no_buffer_space", 289: "unknown_l4", 290: "sip_is_unspecified",
        307: "vxlan_parsing", 331: "dev_ready",
        333: "dup_frag", 365: "tc_ingress", 367: "xdp", 372: "bgp_flowspec",
    }  # fmt: skip
    assert {number: REASONS.get(number) for number in wanted} == wanted
    assert not {16, 255, 332, 366, 373} & REASONS.keys()
    assert len(set(REASONS.values())) == len(REASONS)


def test_a_notice_that_is_cut_off_is_counted_as_broken() -> None:
    whole = discard(header(ipv4("192.0.2.1", "192.0.2.9")))
    short = words(5) + opaque(whole[8:40])
    found = parse_datagram(datagram(short, whole))
    assert (len(found.discards), found.broken) == (1, 1)


def test_a_counter_that_the_switch_does_not_have_is_none() -> None:
    (found,) = parse_datagram(datagram(counters(3, 500, name="Ethernet8"))).counters
    assert (found.port, found.speed, found.name) == (3, GIGABIT, "Ethernet8")
    assert found.values["ifInOctets"] == 500
    assert found.values["ifOutDiscards"] == 24
    assert "ifOutErrors" not in found.values


def test_what_is_not_known_is_passed_over() -> None:
    odd = words(4242 << 12 | 7) + opaque(b"whatever")
    record = words(0x7FFFFFFF) + opaque(bytes(5))
    found = parse_datagram(datagram(odd, flow(record, header(ipv4("192.0.2.1", "192.0.2.2")))))
    assert (len(found.flows), found.flows[0].source, found.broken) == (1, "192.0.2.1", 0)


@pytest.mark.parametrize("data", [b"", b"\0\0\0\5", words(4, 1, 2, 3), words(5, 9, 0, 0)])
def test_what_is_no_datagram_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError):
        parse_datagram(data)


def test_no_byte_that_changes_or_lacks_ends_the_reader() -> None:
    chance = random.Random(29)
    recorded = [
        each.data for file in FIXTURE.iterdir() for each in parse_recorded(file.read_bytes())
    ]
    packet = header(ipv4("192.0.2.1", "192.0.2.2"))
    queue = words(1036) + opaque(words(3))
    named = datagram(discard(packet, queue), discard(TRAP, LINUX, FUNCTION, acl(7, b"x")))
    whole = [*recorded, datagram(flow(packet, wide=True)), named]
    for _ in range(3000):
        data = bytearray(chance.choice(whole))
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.choice([0, 1, 127, 255])
        try:
            found = parse_datagram(bytes(data[: chance.randrange(len(data) + 1)]))
        except ParseError:
            continue
        assert len(found.flows) + len(found.counters) + len(found.discards) <= SAMPLES_MAX
        assert all(not each.detail or is_detail(each.detail) for each in found.discards)


# --- who fills a port ----------------------------------------------------------------------------


def sampled(talkers: Talkers, source: str, count: int, *, at: int = 7, went: int = 9) -> None:
    for _ in range(count):
        talkers.count(Flow(source, "192.0.2.9", 1250, 1000, at, 7, went, False))


def test_a_port_that_several_fill_is_told_with_its_greatest() -> None:
    talkers = Talkers()
    sampled(talkers, "192.0.2.1", 60)
    sampled(talkers, "192.0.2.2", 40)
    (load,) = talkers.take(1.0, {9: GIGABIT}, 0.5, 0)
    assert (load.busy, load.samples, load.senders) == (1.0, 100, 2)
    assert load.pairs == [(("192.0.2.1", "192.0.2.9"), 0.6), (("192.0.2.2", "192.0.2.9"), 0.4)]


def test_a_port_at_work_is_not_told() -> None:
    talkers = Talkers()
    for seconds, speeds, counts in (
        (1.0, {9: GIGABIT}, {"192.0.2.1": 100}),  # one sender
        (1.0, {9: GIGABIT}, {"192.0.2.1": 20, "192.0.2.2": 20}),  # too few samples
        (10.0, {9: GIGABIT}, {"192.0.2.1": 60, "192.0.2.2": 40}),  # a tenth of its line
        (1.0, {}, {"192.0.2.1": 60, "192.0.2.2": 40}),  # nothing is known of its line
        (0.0, {9: GIGABIT}, {"192.0.2.1": 60, "192.0.2.2": 40}),  # the first read
    ):
        for source, count in counts.items():
            sampled(talkers, source, count)
        assert talkers.take(seconds, speeds, 0.5, 0) == []
    assert talkers.dropped == {"flows": 0, "no_speed": 1, "ports": 0}


def test_a_packet_that_is_sampled_at_both_ends_counts_once() -> None:
    talkers = Talkers()
    for source in ("192.0.2.1", "192.0.2.2"):
        sampled(talkers, source, 30, at=7)
        sampled(talkers, source, 30, at=9)
    (load,) = talkers.take(1.0, {9: GIGABIT}, 0.5, 0)
    assert load.busy == pytest.approx(0.6)
    assert load.samples == 60


def test_a_port_is_told_again_after_a_while() -> None:
    talkers, told = Talkers(), []
    for second in range(0, 2 * AGAIN_SECONDS, 10):
        sampled(talkers, "192.0.2.1", 60)
        sampled(talkers, "192.0.2.2", 40)
        told += [second] * len(talkers.take(1.0, {9: GIGABIT}, 0.5, second * 10**9))
    assert told == [0, AGAIN_SECONDS]


def test_pairs_are_bounded_and_what_is_dropped_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talkers_module, "FLOWS_MAX", 10)
    talkers = Talkers()
    for number in range(25):
        sampled(talkers, f"192.0.2.{number}", 6)
    assert talkers.dropped["flows"] == 90
    (load,) = talkers.take(1.0, {9: GIGABIT}, 0.1, 0)
    assert load.senders == 10


# --- what a switch has dropped ------------------------------------------------------------------


def dropped(
    source: str = "192.0.2.1", *, output: int = 9, reason: int = 259, detail: str = ""
) -> Discard:
    return Discard(source, "192.0.2.9", 7, output, reason, 3, detail, (0, 1), 0)


def test_drops_are_told_by_port_reason_queue_and_flow() -> None:
    drops = Drops()
    for source, count in (("192.0.2.1", 3), ("192.0.2.2", 1)):
        for _ in range(count):
            drops.count(dropped(source))
    drops.count(dropped(reason=260))
    drops.count(dropped(output=0, reason=258))
    (egress, one), (ingress, other) = drops.take()
    assert (egress, one.total, one.reasons) == (9, 5, {"no_buffer_space": 4, "red": 1})
    assert (one.pairs["192.0.2.1", "192.0.2.9"], one.queues) == (4, {3: 5})
    assert (ingress, other.reasons) == (7, {"acl": 1})
    assert drops.take() == []
    assert drops.told == {"no_buffer_space": 4, "red": 1, "acl": 1}


def test_drops_are_bounded_and_what_is_left_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drops_module, "PORTS_MAX", 2)
    monkeypatch.setattr(drops_module, "PAIRS_MAX", 3)
    drops = Drops()
    for output in (1, 2, 3):
        drops.count(dropped(output=output))
    for number in range(5):
        drops.count(dropped(f"192.0.2.{number}", output=1))
    drops.count(Discard("", "", 0, 0, 9999, None, "", (0, 1), 0))
    assert drops.left_out == 1 + 3 + 1
    assert [(index, found.total) for index, found in drops.take()] == [(1, 6), (2, 1)]
    assert drops.told["other"] == 1


def test_what_dropped_is_told_with_the_most_frequent_and_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drops_module, "DETAILS_MAX", 2)
    drops = Drops()
    for detail in ("acl:a", "acl:b", "acl:b", "acl:c", ""):
        drops.count(dropped(reason=258, detail=detail))
    assert drops.left_out == 1
    ((index, found),) = drops.take()
    event = drops_module.event_of(found, {"host": "leaf-1", "port": str(index)}, 1.0, 0, {})
    assert event.attributes["details"] == "acl:b=2 acl:a=1"
    assert event.attributes["reasons"] == "acl=5"


def test_what_a_switch_withheld_counts_from_its_first_notice_and_by_part() -> None:
    drops = Drops()
    for part, untold in ((1, 100), (2, 7), (1, 130), (2, 7), (1, 5), (1, 6)):
        drops.count(dropped()._replace(source_id=(0, part), untold=untold))
    assert drops.untold == 31


# --- the source ----------------------------------------------------------------------------------


class Stand:
    """The source at a port of this machine, and a switch that sends to it."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - settings
        self.port = free_port(socket.SOCK_DGRAM)
        switch = SflowSwitch(name="leaf-1", address=AGENT, ports={"9": "Ethernet36"})
        self.host = Host()
        self.source = Sflow(
            Settings(listen=f"127.0.0.1:{self.port}", switches=(switch,), **settings)
        )
        self.read()  # which makes the socket
        self.switch = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def send(self, *datagrams: bytes) -> None:
        for each in datagrams:
            self.switch.sendto(each, ("127.0.0.1", self.port))  # the kernel has it then

    def read(self) -> list[Reading]:
        return list(self.source.read(self.host))

    def values(self) -> dict[tuple[str, str], float]:
        return {
            (each.series.metric, dict(each.series.labels).get("drop_reason", "")): each.value
            for each in self.read()
            if isinstance(each, Sample)
        }

    def close(self) -> None:
        self.switch.close()
        self.host.close()


def test_a_busy_port_is_an_event_with_the_hosts_that_are_known(tmp_path: Path) -> None:
    names = tmp_path / "hosts"
    names.write_text("# ours\n192.0.2.1 gpu-1 gpu-1.example\nnonsense\n")
    stand = Stand(hosts_file=str(names), busy_ratio=0.001)
    try:
        flows = [flow(header(ipv4(f"192.0.2.{1 + n % 2}", "192.0.2.9")), rate=10**6)
                 for n in range(10)]  # fmt: skip
        stand.send(datagram(counters(9, 1), sequence=1))
        stand.send(*(datagram(*flows, sequence=2 + n) for n in range(6)))
        (event,) = [each for each in stand.read() if isinstance(each, Event)]
    finally:
        stand.close()
    assert event.kind == "port_talkers"
    assert event.labels == {"host": "leaf-1", "device": "leaf-1", "port": "Ethernet36"}
    assert event.attributes["talkers"] == "192.0.2.1>192.0.2.9=50 192.0.2.2>192.0.2.9=50"
    assert event.attributes["hosts"] == "192.0.2.1=gpu-1"


def test_dropped_packets_are_an_event_and_counts_by_reason(tmp_path: Path) -> None:
    names = tmp_path / "hosts"
    names.write_text("192.0.2.1 gpu-1\n")
    stand = Stand(hosts_file=str(names))
    try:
        stand.send(datagram())
        assert not any(metric == NOTICES for metric, _ in stand.values())
        packet = header(ipv4("192.0.2.1", "192.0.2.9"))
        queue = words(1036) + opaque(words(3))
        stand.send(datagram(discard(packet, queue), discard(packet, queue, untold=5), sequence=2))
        readings = stand.read()
    finally:
        stand.close()
    (event,) = [each for each in readings if isinstance(each, Event)]
    assert event.kind == "port_drops"
    assert event.labels == {"host": "leaf-1", "device": "leaf-1", "port": "Ethernet36"}
    assert event.attributes["reasons"] == "no_buffer_space=2"
    assert event.attributes["queues"] == "3=2"
    assert event.attributes["talkers"] == "192.0.2.1>192.0.2.9=100"
    assert event.attributes["hosts"] == "192.0.2.1=gpu-1"
    values = {
        (each.series.metric, dict(each.series.labels).get("drop_reason", "")): each.value
        for each in readings
        if isinstance(each, Sample)
    }
    assert values[NOTICES, "no_buffer_space"] == 2
    assert values["fabric_switch_drop_notices_withheld_total", ""] == 5


def test_what_is_lost_or_strange_is_counted() -> None:
    stand = Stand()
    try:
        (silent,) = [each for each in stand.read() if isinstance(each, Missing)]
        assert silent.series.metric == "fabric_switch_flow_datagrams_total"
        stand.send(datagram(sequence=5), datagram(sequence=9), datagram(sequence=8))
        stand.send(datagram(agent="198.51.100.7"), b"nonsense", datagram(sequence=10)[:-2])
        values = stand.values()
    finally:
        stand.close()
    assert values["fabric_switch_flow_datagrams_total", ""] == 3
    assert values["fabric_switch_flow_lost_datagrams_total", ""] == 3
    assert values["fabric_switch_flow_left_out_total", "unknown_switch"] == 1
    assert values["fabric_switch_flow_left_out_total", "not_sflow"] == 2


def test_a_counter_of_32_bits_goes_on_beyond_its_end() -> None:
    stand = Stand(counters=True)
    discards = "fabric_port_transmit_discards_total", ""
    found = []
    try:
        for sequence, raw in enumerate([(1 << 32) - 6, 4], 1):
            body = datagram(counters(9, 1), sequence=sequence)
            stand.send(body.replace(words(24), words(raw)))
            found.append(stand.values()[discards])
    finally:
        stand.close()
    assert found == [(1 << 32) - 6, (1 << 32) + 4]


def test_an_address_that_is_taken_is_named() -> None:
    stand = Stand()
    other = Sflow(stand.source._settings)
    host = Host()
    try:
        (missing,) = list(other.read(host))
        assert isinstance(missing, Missing)
        assert "in use" in missing.detail
    finally:
        stand.close()
        host.close()


@pytest.mark.parametrize(
    "settings",
    [
        Settings(listen="6343", switches=(SflowSwitch(name="a", address=AGENT),)),
        Settings(listen="127.0.0.1:6343"),
        Settings(listen="127.0.0.1:6343", switches=(SflowSwitch(name="a", address=AGENT),) * 2),
        Settings(
            listen="127.0.0.1:6343",
            switches=(SflowSwitch(name="a", address=AGENT, ports={"Ethernet0": "9"}),),
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: Settings) -> None:
    with pytest.raises(SettingsError):
        Sflow(settings)


def test_an_agent_without_sflow_does_not_wake_up() -> None:
    source = Sflow(Settings())
    assert not hasattr(source, "look_seconds")
    assert list(source.read(Host())) == []
