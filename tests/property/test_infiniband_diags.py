"""Whatever stands where an output of infiniband-diags or UFM's page should be: no exception.

Outputs are real ones with bytes changed, lines cut and repeated, and names that no device has.
"""

import tempfile
from pathlib import Path
from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from collector.contract.identity import check_labels
from collector.contract.model import Missing, Sample
from collector.doors.commands import Output
from collector.doors.fetch import OPEN, Access
from collector.parsing import infiniband_diags as diags
from collector.parsing.ibdiagnet import parse_db_csv, parse_log, parse_net_dump_ext
from collector.parsing.subnet_manager import parse_log_line, parse_sminfo
from collector.reading.ufm import Ufm
from collector.reading.ufm_rest import UfmRest
from collector.sources.ib_fabric import IbFabric, Settings
from tests.doubles.fakes import HandHost

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures/sources/ib_fabric"
OUTPUTS = sorted(path for path in FIXTURES.glob("*/tree/commands/*") if path.is_file())
PAGES = sorted(FIXTURES.glob("*/tree/http/*"))
NAMES = st.text(st.characters(codec="utf-8", exclude_characters='"\n\r'), max_size=64)
GUIDS = st.integers(1, (1 << 64) - 1).map(lambda number: f"0x{number:016x}")
PORTS = st.integers(1, diags.PORT_MAX)
LIDS = st.integers(1, 0xBFFF)


@st.composite
def damaged(draw: st.DrawFn, paths: list[Path]) -> bytes:
    """A real output with parts changed, left out or repeated."""
    data = bytearray(draw(st.sampled_from([path.read_bytes() for path in paths])))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 40)))
        data[at:end] = draw(st.binary(max_size=12)) * draw(st.integers(0, 3))
    return bytes(data[: draw(st.integers(0, len(data)))])


@given(damaged(OUTPUTS) | st.binary(max_size=400))
def test_no_output_breaks_a_parser(text: bytes) -> None:
    for line in (*diags.parse_links(text)[0], *diags.parse_ports(text)[0]):
        assert 0 < line.port <= diags.PORT_MAX
        assert 0 <= line.lid <= diags.LID_MAX
        assert line.name.isprintable()
    for block in diags.parse_blocks(text)[0]:
        assert all(0 <= value <= diags.NUMBER_MAX for value in block.values.values())
    nodes, _ = diags.parse_nodes(text)
    assert all(node.guid == guid for guid, node in nodes.by_guid.items())
    diags.parse_counted(text)
    diags.parse_failures(text)
    diags.parse_name_map(text)
    table = diags.parse_keys(text) or {}
    assert all(0 <= key <= 0xFFFF for key in table.values())


@given(
    texts=st.lists(damaged(OUTPUTS), min_size=1, max_size=6),
    hcas=st.booleans(),
    is_cut=st.booleans(),
)
def test_the_source_yields_series_that_may_be_stored(
    *, texts: list[bytes], hcas: bool, is_cut: bool
) -> None:
    class Liar(HandHost):
        """Every program prints one of the texts, whatever its arguments."""

        def run(self, words: object, seconds: float, environment: object = None) -> Output:
            del seconds, environment
            return Output(texts[crc32(str(words).encode()) % len(texts)], is_cut=is_cut)

    settings = Settings(enabled=True, hcas=hcas, processes=1, topology_seconds=0, partitions=True)
    source = IbFabric(settings)
    with tempfile.TemporaryDirectory() as root:
        for _ in range(2):
            readings = [
                each for each in source.read(Liar(Path(root))) if isinstance(each, Sample | Missing)
            ]
            for each in readings:
                check_labels(each.series.full_labels({"host": "me"}))
            series = [each.series for each in readings]
            assert len(series) == len(set(series))


@given(page=damaged(PAGES) | st.binary(max_size=400), hcas=st.booleans())
def test_no_page_breaks_the_reader_of_ufm(*, page: bytes, hcas: bool) -> None:
    class Server(HandHost):
        """A UFM that answers this."""

        def fetch(self, url: str, seconds: float, access: Access = OPEN) -> bytes:
            del url, seconds, access
            return page

    with tempfile.TemporaryDirectory() as root:
        readings = list(Ufm("http://ufm/", hcas=hcas).read(Server(Path(root)), 1.0, {}))
    series = [each.series for each in readings if isinstance(each, Sample | Missing)]
    assert len(series) == len(set(series))
    for each in series:
        check_labels(each.full_labels({"host": "me"}))


@given(GUIDS, LIDS, PORTS, NAMES, GUIDS, LIDS, PORTS, NAMES)
def test_a_link_is_read_as_it_was_printed(
    guid: str, lid: int, port: int, name: str, peer: str, peer_lid: int, peer_port: int, far: str
) -> None:
    line = (
        f'{guid} "{name:>30}" {lid:6d} {port:4d}[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>'
        f'  {peer} {peer_lid:6d} {peer_port:4d}[  ] "{far}" (Could be 12X )\n'
    )
    (found,), broken = diags.parse_links(line.encode())
    assert not broken
    assert (found.guid, found.lid, found.port) == (guid, lid, port)
    assert found.name == diags.clean_name(name)
    assert found.peer == diags.Peer(peer, peer_lid, peer_port, diags.clean_name(far))
    assert (found.lanes, found.speed, found.state, found.physical_state) == (4, "HDR", 4, 5)


@given(st.dictionaries(GUIDS, NAMES, max_size=12), st.dictionaries(GUIDS, NAMES, max_size=3))
def test_no_two_nodes_have_one_name(descriptions: dict[str, str], given: dict[str, str]) -> None:
    names = diags.name_nodes(descriptions, {guid: name for guid, name in given.items() if name})
    assert names.keys() == descriptions.keys()
    assert len(set(names.values())) == len(names)


@given(st.lists(st.tuples(PORTS, st.integers(0, diags.NUMBER_MAX)), min_size=1, max_size=5))
def test_a_cut_output_never_gives_a_number_that_was_not_printed(
    values: list[tuple[int, int]],
) -> None:
    text = "".join(
        f"# Port counters: Lid 2 port {port} (CapMask: 0x1300)\nPortXmitData:....{value}\n"
        for port, value in values
    ).encode()
    printed = {value for _, value in values}
    for end in range(len(text)):
        blocks, _ = diags.parse_blocks(text[:end])
        assert {value for block in blocks for value in block.values.values()} <= printed


ANSWERS = [path for path in sorted(FIXTURES.glob("ufm_rest/tree/http/*")) if path.is_file()]
FILES = [
    path
    for pattern in ("ibdiagnet/*/tree/**/*", "opensm/*/tree/**/*")
    for path in sorted(FIXTURES.parent.glob(pattern))
    if path.is_file()
]


@given(pages=st.lists(damaged(ANSWERS), min_size=1, max_size=4), hcas=st.booleans())
def test_no_answer_breaks_the_reader_of_ufms_interface(*, pages: list[bytes], hcas: bool) -> None:
    class Server(HandHost):
        """A UFM that answers one of these, whatever it is asked."""

        def fetch(self, url: str, seconds: float, access: Access = OPEN) -> bytes:
            del seconds, access
            return pages[crc32(url.encode()) % len(pages)]

    with tempfile.TemporaryDirectory() as root:
        host, reader = Server(Path(root)), UfmRest("https://ufm", "", "", hcas=hcas)
        for _ in range(2):
            found = list(reader.read(host, 1.0, {}, with_switches=True))
            host.clock.advance(61)
            series = [each.series for each in found if isinstance(each, Sample | Missing)]
            assert len(series) == len(set(series))
            for each in series:
                check_labels(each.full_labels({"host": "me"}))


@given(damaged(FILES) | st.binary(max_size=400))
def test_no_file_of_ibdiagnet_or_opensm_breaks_a_parser(text: bytes) -> None:
    for bits in parse_net_dump_ext(text)[0]:
        assert 0 < bits.port <= diags.PORT_MAX
        assert all(ratio is None or 0 <= ratio <= 1 for ratio in (bits.raw, bits.effective))
    for cable in parse_db_csv(text)[1]:
        assert 0 < cable.port <= diags.PORT_MAX
        assert cable.serial.isprintable()
    assert all(check.errors >= 0 for check in parse_log(text).checks)
    parse_sminfo(text)
    for line in text.split(b"\n"):
        said = parse_log_line(line, 1_800_000_000_000_000_000)
        assert said is None or said.text.isprintable()


@given(st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=40))
def test_a_table_of_keys_is_read_whole_or_not_at_all(keys: list[int]) -> None:
    rows = [
        f"{at:4d}: " + " ".join(f"0x{key:04x}" for key in keys[at : at + 8])
        for at in range(0, len(keys), 8)
    ]
    text = ("\n".join(rows) + f"\n{len(keys)} pkeys capacity for this port\n").encode()
    assert diags.parse_keys(text) == dict(enumerate(keys))
    assert all(diags.parse_keys(text[:end]) is None for end in range(len(text)))
