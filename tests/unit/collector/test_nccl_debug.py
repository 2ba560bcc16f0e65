"""NCCL's debug lines: which communicator a line belongs to, bounds, and the source over time."""

import io
from pathlib import Path

import pytest

from collector.contract.collective import communicator_id
from collector.contract.errors import ParseError
from collector.contract.model import Event, Missing, Reading, Sample
from collector.doors.host import Host
from collector.formats import Origin, Record, nccl_debug
from collector.formats.nccl_debug import FORMAT, pci_address
from collector.sources.nccl_debug import SOURCE, Settings

NOW_NS = 1_800_000_000_000_000_000


def line(message: str, pid: int = 7, tid: int = 7) -> str:
    return f"n0:{pid}:{tid} [0] NCCL INFO {message}\n"


def init(pointer: str, end: str, identity: str = "0xaa", rank: int = 0, ranks: int = 4) -> str:
    device = "cudaDev 0 nvmlDev 0 busId 60"
    return (
        f"ncclCommInitRank comm {pointer} rank {rank} nranks {ranks} {device} "
        f"commId {identity} - Init {end}"
    )


def parse(*lines: str) -> list[Record | ParseError]:
    return list(FORMAT.parse(io.BytesIO("".join(lines).encode()), Origin("x", NOW_NS)))


def attributes(records: list[Record | ParseError]) -> dict[str, dict[str, str]]:
    """By communicator."""
    return {
        each.labels["communicator"]: each.attributes
        for each in records
        if isinstance(each, Event) and each.kind == "communicator"
    }


# --- which communicator --------------------------------------------------------------------------


def test_threads_that_initialise_at_once_are_distinguished() -> None:
    found = attributes(
        parse(
            line(init("0x1", "START", "0xaa"), tid=1),
            line(init("0x2", "START", "0xbb"), tid=2),
            line("Ring 00 : 3 -> 0 -> 1", tid=1),
            line("Ring 00 : 2 -> 0 -> 3", tid=2),
            line(init("0x2", "COMPLETE", "0xbb"), tid=2),
            line(init("0x1", "COMPLETE", "0xaa"), tid=1),
        )
    )
    assert {name: each["ring_00"] for name, each in found.items()} == {"0xaa": "3,1", "0xbb": "2,3"}


def rccl(rank: int, end: str) -> str:
    """As RCCL 2.27.7 (ROCm 7.2.0) writes it."""
    return (
        f"ncclCommInitRankConfig_impl comm 0x2bc1f840 rank {rank} nranks 2 cudaDev {rank} "
        f"nvmlDev {rank} busId 3000 commId 0xcde2ea451c75c2ba - Init {end}"
    )


RCCL_VERSION = "RCCL version : 2.27.7-HEAD:0d2c4fd"


@pytest.mark.parametrize("version", [line(RCCL_VERSION), f"{RCCL_VERSION}\n"])
def test_rccl_writes_the_same_lines_with_more_behind_them(version: str) -> None:
    """The forms of a log of ROCm 7.2.0; older ones (6.4.2) have the version alone in its line."""
    after = "comm 0x2bc1f840 nRanks 02"
    found = attributes(
        parse(
            version,
            "HIP version  : 7.2.26015-fc0010cf6a\n",
            "Librccl path : /opt/rocm-7.2.0/lib/librccl.so.1\n",
            line("NET/IB : Using [0]bnxt_re0:1/RoCE [RO]; OOB eno1:10.0.20.2<0>"),
            line("Using network IB"),
            line(rccl(0, "START")),
            line("comm 0x2bc1f840 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0"),
            line("[RINGS]  00->01"),
            line(f"Ring 0 : 1 -> 0 -> 1 {after} busId 3000"),
            line(f"Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1 {after} busId 3000"),
            line(f"Channel 00/0 : 0[3000] -> 1[d000] via P2P/IPC {after}"),
            line("RCCL Unroll Factor (pre-set): 4"),
            line(f"Channel 00/0 : 0[3000] -> 1[d000] [send] via NET/IB/0/GDRDMA {after}"),
            line(rccl(0, "COMPLETE")),
        )
    )
    (only,) = found.values()
    assert list(found) == [communicator_id("0xcde2ea451c75c2ba")]
    assert only["nccl_version"] == "2.27.7-HEAD:0d2c4fd"
    assert (only["ring_00"], only["net"]) == ("1,1", "IB")
    assert only["devices"] == "bnxt_re0"


def connected(*connections: str) -> dict[str, str]:
    """The devices of two communicators of one process, by communicator."""
    lines = [
        line("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>"),
        line("Using network IB"),
        line(init("0x1", "START", "0xaa")),
        line("Ring 00 : 3 -> 0 -> 1"),
        line(init("0x1", "COMPLETE", "0xaa")),
        line(init("0x2", "START", "0xbb", ranks=2)),
        line("Ring 00 : 1 -> 0 -> 1"),
        line(init("0x2", "COMPLETE", "0xbb", ranks=2)),
    ]
    found = attributes(parse(*lines, *(line(each) for each in connections)))
    return {name: each.get("devices", "") for name, each in found.items()}


def test_a_connection_belongs_to_the_latest_communicator_with_such_neighbours() -> None:
    from_three = "Channel 00/0 : 3[0] -> 0[0] [receive] via NET/IB/1"
    to_one = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA"
    assert connected(from_three, to_one) == {"0xaa": "mlx5_1", "0xbb": "mlx5_0"}


def test_a_connection_to_no_neighbour_belongs_to_the_latest_with_such_ranks() -> None:
    other_ranks = "Channel 00/1 : 0[0] -> 2[0] [send] via NET/IB/1"
    not_mine = "Channel 00/1 : 1[0] -> 2[0] [send] via NET/IB/0"
    assert connected(other_ranks, not_mine) == {"0xaa": "mlx5_1", "0xbb": ""}


def test_a_device_without_a_name_keeps_its_number() -> None:
    assert connected("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/9")["0xbb"] == "IB/9"


def test_a_pointer_that_is_used_again_is_another_communicator() -> None:
    records = parse(
        line(init("0x1", "START", "0xaa")),
        line(init("0x1", "COMPLETE", "0xaa")),
        line("comm 0x1 rank 0 nranks 4 cudaDev 0 busId 60 - Destroy COMPLETE"),
        line(init("0x1", "START", "0xbb", ranks=2)),
        line(init("0x1", "COMPLETE", "0xbb", ranks=2)),
    )
    assert {name: each["ranks"] for name, each in attributes(records).items()} == {
        "0xaa": "4",
        "0xbb": "2",
    }
    assert len(records) == 2


def test_virtual_devices_have_the_names_of_their_parts() -> None:
    found = attributes(
        parse(
            line("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:1.2.3.4<0>"),
            line("NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=800000 ndevs=2"),
            line(init("0x1", "START")),
            line("Channel 00/0 : 3[0] -> 0[0] [receive] via NET/IB/2/GDRDMA"),
            line(init("0x1", "COMPLETE")),
        )
    )
    assert (found["0xaa"]["devices"], found["0xaa"]["gpu_direct"]) == ("mlx5_0+mlx5_1", "1")


def test_a_cut_ring_is_not_taken_for_a_whole_one() -> None:
    lines = [line(init("0x1", "START")), line("Channel 00/01 : 0 1 2")]
    assert "rings" not in attributes(parse(*lines))["0xaa"]
    lines[1] = line("Channel 00/01 :    0   2   1   3")
    assert attributes(parse(*lines))["0xaa"]["rings"] == "[[0,2,1,3]]"


# --- lines of all kinds --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prefix", ["", "[1,3]<stdout>:", "3: ", "[default3]:", "[2026-11-15 00:42:00] "]
)
def test_launchers_put_things_before_a_line(prefix: str) -> None:
    (found,) = parse(prefix + line(init("0x1", "START")))
    assert isinstance(found, Event)
    assert found.attributes["host"] == "n0"


def test_a_line_s_own_time_is_read_as_utc_and_is_not_after_the_file_s() -> None:
    warning = "n0:7:7 [0] misc/socket.cc:484 NCCL WARN socketPollConnect: Connection refused\n"
    times = [
        each.time_ns
        for each in parse(
            warning,
            "[2026-11-15 00:42:00] " + warning,
            "[2099-01-01T00:00:00.5] " + warning,
            "[9999-99-99 99:99:99] " + warning,
        )
        if isinstance(each, Event)
    ]
    assert times == [NOW_NS, 1_794_703_320_000_000_000, NOW_NS, NOW_NS]


def test_warnings_with_a_signature_or_without_a_prefix_are_read() -> None:
    """As plug-ins of C++ print them, and as programs print them again."""
    signed = (
        "n0:7:7 [0] int cm_req_handle_error_entry(nccl_net_ofi_context_t*, fid_cq*, uint16_t):46 "
        "NCCL WARN NET/OFI Request 0x7f completed\n"
    )
    first, second = (
        each
        for each in parse(signed, 'NCCL WARN Missing "iommu=pt"\n')
        if isinstance(each, Event) and each.kind == nccl_debug.WARNING
    )
    assert first.message == "NET/OFI Request 0x7f completed"
    assert first.attributes["host"] == "n0"
    assert first.attributes["place"].startswith("int cm_req_handle_error_entry(")
    assert (second.labels, second.attributes) == ({}, {})
    assert second.message == 'Missing "iommu=pt"'


def test_warnings_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_debug, "WARNINGS_MAX", 3)
    found = parse(*["n0:7:7 [0] a.cc:1 NCCL WARN bad\n"] * 10)
    assert len([each for each in found if isinstance(each, Event)]) == 3
    assert str(found[-1]) == "7 warnings beyond WARNINGS_MAX = 3 left out"


def test_communicators_are_bounded_and_given_out_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_debug, "COMMUNICATORS_MAX", 5)
    found = parse(*(line(init(hex(n), "START", hex(n)), tid=n) for n in range(1, 20)))
    assert len(attributes(found)) == 19
    assert len(found) == 19


def test_threads_and_processes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_debug, "THREADS_MAX", 5)
    log = nccl_debug.DebugLog(NOW_NS)
    for n in range(100):
        list(log.feed(line("Ring 00 : 0 -> 1 -> 2", pid=n, tid=n).encode()))
    assert len(log._open) == 5
    assert len(log._processes) == 5


def test_ranks_and_channels_that_cannot_be_are_not_taken() -> None:
    lines = [
        line(init("0x1", "START", rank=99_999_999)),
        line(init("0x1", "START", identity="hello")),
        line(init("not-hex", "START")),
        line("Ring 640 : 0 -> 1 -> 2"),
        line("Trees [99] 1/-1/-1->0->-1"),
        line("Channel 99/99 : 0 1 2 3"),
        "NCCL INFO without a prefix\n",
        "\x00\xff binary\n",
    ]
    found = parse(*lines)
    assert attributes(found) == {}
    assert len([each for each in found if isinstance(each, ParseError)]) == 1


def test_a_long_line_costs_little() -> None:
    assert parse("a:1:1 [0" * 400_000 + " NCCL INFO " + "Channel " * 50_000 + "\n") == []


def test_debug_lines_of_nccl_tests_are_another_format_s() -> None:
    head = line(init("0x1", "START")).encode()
    assert FORMAT.recognises(head, Origin("x"))
    assert not FORMAT.recognises(b"# nThread 1 nGpus 1\n" + head, Origin("x"))
    assert not FORMAT.recognises(b"loss 3.0\n", Origin("x"))


def test_pci_addresses_have_a_domain() -> None:
    assert pci_address("10001b000") == "1000:1b:00.0"
    assert pci_address("ca001") == "0000:ca:00.1"


# --- the source ----------------------------------------------------------------------------------


def read(source: SOURCE, root: Path) -> list[Reading]:
    host = Host(root)
    try:
        return list(source.read(host))
    finally:
        host.close()


def devices(readings: list[Reading]) -> list[str | None]:
    return [each.attributes.get("devices") for each in readings if isinstance(each, Event)]


def test_a_communicator_comes_when_it_is_initialised_and_when_more_is_known(
    tmp_path: Path,
) -> None:
    source = SOURCE(Settings(files=("/logs/*.log",)))
    path = tmp_path / "logs/job.log"
    path.parent.mkdir()
    path.write_text(line(init("0x1", "START")) + line("Ring 00 : 3 -> 0 -> 1"))
    assert devices(read(source, tmp_path)) == []
    with path.open("a") as log:
        log.write(line(init("0x1", "COMPLETE")))
    assert devices(read(source, tmp_path)) == [None]
    assert devices(read(source, tmp_path)) == []
    with path.open("a") as log:
        log.write(line("Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"))
    assert devices(read(source, tmp_path)) == ["Socket/0"]


def test_what_was_read_is_not_read_again_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(line(init("0x1", "START")) + line(init("0x1", "COMPLETE")))
    settings = Settings(files=("/*.log",))
    source = SOURCE(settings)
    assert devices(read(source, tmp_path)) == [None]
    another = SOURCE(settings)
    another.load_state(source.save_state())
    assert devices(read(another, tmp_path)) == []
    another.load_state({"": 3})


def test_a_truncated_log_is_another_log(tmp_path: Path) -> None:
    source = SOURCE(Settings(files=("/*.log",)))
    path = tmp_path / "job.log"
    path.write_text(line(init("0x1", "START")) * 3 + line(init("0x1", "COMPLETE")))
    read(source, tmp_path)
    path.write_text(line(init("0x1", "START", "0xbb")) + line(init("0x1", "COMPLETE", "0xbb")))
    names = [
        each.labels["communicator"] for each in read(source, tmp_path) if isinstance(each, Event)
    ]
    assert names == ["0xbb"]


def test_warnings_are_counted_and_an_old_communicator_is_named(tmp_path: Path) -> None:
    source = SOURCE(Settings(files=("/*.log",), job="j"))
    path = tmp_path / "job.log"
    path.write_text(
        "n0:7:7 [0] a.cc:1 NCCL WARN bad\n" * 2
        + line("comm 0x9a0 rank 1 nranks 2 cudaDev 1 busId 3000 - Init COMPLETE")
    )
    for _ in range(2):
        found = read(source, tmp_path)
        values = {each.series.metric: each.value for each in found if isinstance(each, Sample)}
        assert values["fabric_job_nccl_warnings_total"] == 2
        (missing,) = [each for each in found if isinstance(each, Missing)]
        assert "without commId" in missing.detail


# --- switches that add up ------------------------------------------------------------------------

CHANNELS = "16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels"
"""NCCL from 2.19 on prints the number of all channels as that of collnet's (`src/init.cc`)."""


def in_network(*messages: str, nodes: int = 2) -> dict[str, bool]:
    """Whether each communicator is marked; the second one is of another process."""
    counted = f"comm 0x1 rank 0 nRanks 4 nNodes {nodes} localRanks 1 localRank 0 MNNVL 0"
    found = attributes(
        parse(
            line(init("0x1", "START", "0xaa")),
            line(counted),
            line(init("0x1", "COMPLETE", "0xaa")),
            line(init("0x9", "START", "0xbb"), pid=8),
            line(init("0x9", "COMPLETE", "0xbb"), pid=8),
            *(line(message) for message in messages),
        )
    )
    return {name: each.get("in_network") == "1" for name, each in found.items()}


@pytest.mark.parametrize(
    "message",
    [
        # NCCL 2.28 and 2.11: src/transport/coll_net.cc
        "CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA",
        "CollNet 03 : 0 [receive] via COLLNET/SHARP/1",
        # NCCL 2.7
        "Coll 00 : 0 [send] via COLLNET/SHARP/0",
        # NCCL 2.28 and later with NCCL_DEBUG_SUBSYS=TUNING: src/enqueue.cc
        "AllReduce: 4194304 Bytes -> Algo CollNetDirect proto Simple channel{Lo..Hi}={0..7}",
        "AllReduce: 64 Bytes -> Algo COLLNET_CHAIN proto SIMPLE channel{Lo..Hi}={0..7} comm 0x1",
        "AllReduce: 4194304 Bytes -> Algo NVLS proto Simple channel{Lo..Hi}={0..7}",
    ],
)
def test_a_connection_to_a_switch_that_adds_up_marks_its_communicator(message: str) -> None:
    assert in_network(CHANNELS, message) == {"0xaa": True, "0xbb": False}


@pytest.mark.parametrize(
    "message",
    [
        CHANNELS,
        "CollNet plugin loaded",
        "CollNet 00/0 : 3 [send] via COLLNET/SHARP/0",  # a rank that this process has not
        "AllReduce: 4194304 Bytes -> Algo Ring proto Simple channel{Lo..Hi}={0..7}",
        "AllReduce: 4194304 Bytes -> Algo NVLSTree proto Simple channel{Lo..Hi}={0..7}",
        "AllReduce: 64 Bytes -> Algo COLLNET_CHAIN proto SIMPLE channel{Lo..Hi}={0..7} comm 0x7",
    ],
)
def test_other_lines_mark_none(message: str) -> None:
    assert in_network(message) == {"0xaa": False, "0xbb": False}


def test_nvls_on_one_host_is_the_nvswitch() -> None:
    choice = "AllReduce: 4194304 Bytes -> Algo NVLS proto Simple channel{Lo..Hi}={0..7}"
    assert not in_network(choice, nodes=1)["0xaa"]


def test_a_choice_that_names_no_communicator_marks_none_of_several() -> None:
    found = attributes(
        parse(
            *(
                line(init(pointer, end, identity))
                for pointer, identity in (("0x1", "0xaa"), ("0x2", "0xbb"))
                for end in ("START", "COMPLETE")
            ),
            line("AllReduce: 64 Bytes -> Algo CollNetChain proto Simple channel{Lo..Hi}={0..0}"),
        )
    )
    assert not any("in_network" in each for each in found.values())
