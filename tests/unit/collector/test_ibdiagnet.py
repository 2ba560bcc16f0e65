"""ibdiagnet's files: odd input, and what is no longer true."""

from pathlib import Path

import pytest

from collector.contract.model import Missing, Reading, Sample
from collector.parsing.ibdiagnet import parse_db_csv, parse_log, parse_net_dump_ext
from collector.sources.ibdiagnet import IbDiagnet, Settings
from tests.doubles.fakes import HandHost

HEADER = "Ty : # : #IB : GUID : LID : Sta : Raw BER : Effective BER : Symbol BER : Node Desc\n"
PORT = 'SW : x : 1 : 0xa1 : 3 : ACT : 1e-9 : 1e-15 : 0 : "MF0;leaf-0:MQM9700/U1"\n'


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\0" * 1000,
        b"\xff\xfe" * 1000,
        b":" * 100_000 + b"\n",
        b"START_CABLE_INFO\n" * 1000,
        b'START_CABLE_INFO\nNodeGuid,PortNum\n"0x1,2\n',
        HEADER.encode() + b"SW : " * 10_000 + b"\n",
        HEADER.encode() * 100,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_what_is_no_file_of_ibdiagnets_gives_nothing_and_raises_nothing(text: bytes) -> None:
    assert parse_net_dump_ext(text)[0] == []
    assert parse_db_csv(text)[1] == []
    assert parse_log(text) == ([], None)


def test_names_have_colons_and_columns_may_move() -> None:
    (bits,), broken = parse_net_dump_ext((HEADER + PORT).encode())
    assert (bits.node.name, bits.port, bits.raw, bits.effective, broken) == (
        "MF0;leaf-0:MQM9700/U1",
        1,
        1e-9,
        1e-15,
        0,
    )
    moved = (
        "Ty : GUID : #IB : Effective BER : Raw BER : Node Desc\nSW : 0xa1 : 1 : 2e-9 : 1e-3 : x\n"
    )
    (bits,), _ = parse_net_dump_ext(moved.encode())
    assert (bits.raw, bits.effective) == (1e-3, 2e-9)


@pytest.mark.parametrize(
    ("line", "has_loops"),
    [
        ("-I- no credit loops found", False),
        ("-I- No credit loops found.", False),
        ("-E- credit loops in routing", True),
        ("-E- Found:12 Credit Loops", True),
        ("-E- Found:3 CA to CA paths that can cause credit loops.", True),
        ("-W- Stopped checking for loops after 100 errors", None),
        ("-I- Credit Loops Report:", None),
    ],
)
def test_credit_loops_are_found_not_found_or_not_looked_for(
    line: str, *, has_loops: bool | None
) -> None:
    assert parse_log(f"{line}\n".encode()).has_credit_loops is has_loops


def test_a_result_that_is_old_is_missing_and_comes_back_with_the_next_run(tmp_path: Path) -> None:
    log = tmp_path / "out/ibdiagnet2.log"
    log.parent.mkdir()
    log.write_text("-I- no credit loops found\n")
    host = HandHost(tmp_path)
    host.clock.wall_ns = log.stat().st_mtime_ns + 10 * 10**9
    source = IbDiagnet(Settings(folders=("/out",), old_seconds=3600))

    def loops() -> Reading:
        return next(iter(source.read(host)))

    fresh = loops()
    assert isinstance(fresh, Sample)
    assert fresh.value == 0
    host.clock.advance(7200)
    assert isinstance(loops(), Missing)
    log.write_text("-E- credit loops in routing!\n")
    host.clock.wall_ns = log.stat().st_mtime_ns + 10 * 10**9
    again = loops()
    assert isinstance(again, Sample)
    assert again.value == 1
