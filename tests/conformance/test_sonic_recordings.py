"""What sonic-gnmi's own tests hold: every number comes out under its metric, once, or is listed.

What a field means is written down here a second time, from SAI's names (saiport.h, saiqueue.h) and
SONiC's (PFC_WD, RATES): nothing of the profile is used. What has no metric is listed, with the
reason, in `tests/fixtures/sources/unmapped.toml`: a number, or a file, that is in no list fails
the test. The recordings are other people's, and lie beside the repository, if at all.
"""

import json
import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from collector.contract.model import Event, Sample
from tests.doubles.sonic_server import Databases, Fields, answer
from tests.stands.sonic import Bench
from tests.tools.unmapped import unmapped

ROOT = Path(__file__).resolve().parents[2]
OTHERS = ROOT.parent / "shared/recordings/sonic-gnmi"
pytestmark = pytest.mark.skipif(not OTHERS.is_dir(), reason="sonic-gnmi's test data is not there")

ANSWERS = {
    "COUNTERS_Ethernet_wildcard*.txt": "COUNTERS/Ethernet*",
    "COUNTERS_Ethernet_wildcard_Queues*.txt": "COUNTERS/Ethernet*/Queues",
    "COUNTERS_Ethernet_wildcard_Pfcwd*.txt": "COUNTERS/Ethernet*/Pfcwd",
    "COUNTERS_Ethernet_wildcard_PFC_7_RX*.txt": "COUNTERS/Ethernet*/SAI_PORT_STAT_PFC_7_RX_PKTS",
    "COUNTERS_Ethernet68_Queues*.txt": "COUNTERS/Ethernet68/Queues",
    "COUNTERS_Ethernet7_Queues*.txt": "COUNTERS/Ethernet7/Queues",
    "COUNTERS_Ethernet68_Pfcwd*.txt": "COUNTERS/Ethernet68/Pfcwd",
    "COUNTERS_Ethernet[0-9].txt": "COUNTERS/Ethernet1",
    "COUNTERS_Ethernet68.txt": "COUNTERS/Ethernet68",
    "COUNTERS_PORT0.txt": "COUNTERS/PORT0",
    "COUNTERS_PORT_wildcard*.txt": "COUNTERS/PORT*",
    "COUNTERS_SWITCH_ID.txt": "COUNTERS/SWITCH_ID",
    "COUNTERS_SWITCH_wildcard*.txt": "COUNTERS/SWITCH*",
    "PERIODIC_WATERMARKS_Ethernet_wildcard_*.txt": "PERIODIC_WATERMARKS/Ethernet*/PriorityGroups",
    "PERIODIC_WATERMARKS_Ethernet16_*.txt": "PERIODIC_WATERMARKS/Ethernet16/PriorityGroups",
    "RATES_Ethernet_wildcard*.txt": "RATES/Ethernet*",
}
"""Recorded answers, by the path that was asked for; of several patterns the longest counts."""
PORT_TABLES = ("PORT_TABLE.txt", "OPER_DOWN_PORT_TABLE.json")
OBJECTS = (
    "COUNTERS_oid_*.txt",
    "PERIODIC_WATERMARKS_oid_*.txt",
    "RATES_oid_*.txt",
    "PORT_COUNTERS.txt",
    "PORT_COUNTERS_TWO.txt",
    "PORT_RATES.txt",
    "PORT_RATES_TWO.txt",
)
"""Contents of redis, from which the double answers."""
AS_THE_SERVER_DID = {
    "COUNTERS/Ethernet*": "COUNTERS_Ethernet_wildcard_alias_expected.txt",
    "COUNTERS/Ethernet*/Queues": "COUNTERS_Ethernet_wildcard_Queues_alias_expected.txt",
    "COUNTERS/Ethernet*/SAI_PORT_STAT_PFC_7_RX_PKTS": (
        "COUNTERS_Ethernet_wildcard_PFC_7_RX_alias.txt"
    ),
    "PERIODIC_WATERMARKS/Ethernet*/PriorityGroups": (
        "PERIODIC_WATERMARKS_Ethernet_wildcard_PriorityGroups_alias_expected.txt"
    ),
    "RATES/Ethernet*": "RATES_Ethernet_wildcard_alias_expected.txt",
    "COUNTERS/PORT*": "COUNTERS_PORT_wildcard.txt",
    "COUNTERS/SWITCH*": "COUNTERS_SWITCH_wildcard.txt",
}
WITHOUT_METRIC = unmapped("sonic-gnmi", "fields")
WITHOUT_NUMBERS = unmapped("sonic-gnmi", "files")

# --- what a field means --------------------------------------------------------------------------

WAY = {"IN": "receive", "OUT": "transmit", "RX": "receive", "TX": "transmit"}
WHAT = {
    "OCTETS": "bytes",
    "UCAST_PKTS": "unicast_packets",
    "MULTICAST_PKTS": "multicast_packets",
    "BROADCAST_PKTS": "broadcast_packets",
    "ERRORS": "errors",
    "DISCARDS": "discards",
}
PLAIN = {
    "SAI_PORT_STAT_ETHER_STATS_CRC_ALIGN_ERRORS": "receive_crc_errors_total",
    "SAI_PORT_STAT_IF_IN_FEC_CORRECTABLE_FRAMES": "receive_fec_corrected_blocks_total",
    "SAI_PORT_STAT_IF_IN_FEC_NOT_CORRECTABLE_FRAMES": "receive_fec_uncorrectable_blocks_total",
    "SAI_PORT_STAT_IF_IN_FEC_CORRECTED_BITS": "receive_fec_corrected_bits_total",
    "SAI_PORT_STAT_IF_IN_FEC_SYMBOL_ERRORS": "receive_fec_symbol_errors_total",
    "FEC_PRE_BER": "receive_fec_pre_bit_error_ratio",
    "FEC_POST_BER": "receive_fec_post_bit_error_ratio",
    "SAI_QUEUE_STAT_PACKETS": "queue_transmit_packets_total",
    "SAI_QUEUE_STAT_BYTES": "queue_transmit_bytes_total",
    "SAI_QUEUE_STAT_DROPPED_PACKETS": "queue_discarded_packets_total",
    "SAI_QUEUE_STAT_DROPPED_BYTES": "queue_discarded_bytes_total",
    "SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES": "queue_depth_bytes",
    "SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES": "queue_peak_bytes",
    "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED": "pause_watchdog_stuck_total",
    "PFC_WD_QUEUE_STATS_DEADLOCK_RESTORED": "pause_watchdog_recovered_total",
    "PFC_WD_STATUS": "pause_watchdog_active",
    "SAI_INGRESS_PRIORITY_GROUP_STAT_SHARED_WATERMARK_BYTES": "priority_group_peak_bytes",
    "SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES": (
        "priority_group_headroom_peak_bytes"
    ),
}
WORDS = {"operational": 0.0}

Labels = frozenset[tuple[str, str]]


class Meaning(NamedTuple):
    """A metric, and the labels that a field gives it."""

    metric: str
    labels: dict[str, str]


def meaning_of(field: str) -> Meaning | None:
    if (found := re.fullmatch(r"SAI_PORT_STAT_IF_(IN|OUT)_(.+)", field)) and found[2] in WHAT:
        return Meaning(f"fabric_port_{WAY[found[1]]}_{WHAT[found[2]]}_total", {})
    if found := re.fullmatch(r"SAI_PORT_STAT_(?:PFC_([0-7])|PAUSE)_(RX|TX)_PKTS", field):
        metric = f"fabric_port_{WAY[found[2]]}_pause_frames_total"
        return Meaning(metric, {"priority": found[1] or "global"})
    if found := re.fullmatch(r"SAI_PORT_STAT_IF_IN_FEC_CODEWORD_ERRORS_S(\d+)", field):
        return Meaning("fabric_port_receive_fec_blocks_total", {"symbol_errors": found[1]})
    if field == "SAI_SWITCH_STAT_PACKET_INTEGRITY_DROP":
        return Meaning("fabric_switch_drops_total", {"drop_reason": "packet_integrity"})
    return Meaning(f"fabric_port_{PLAIN[field]}", {}) if field in PLAIN else None


def is_listed(field: str) -> bool:
    return any(re.fullmatch(pattern, field) for pattern in WITHOUT_METRIC)


def place_of(name: str, table: str, names: dict[str, str]) -> dict[str, str]:
    """The labels that an object's name gives: of a port, a queue, a priority group or a chip.

    >>> place_of("etp1:3", "COUNTERS", {"etp1": "Ethernet0"})
    {'port': 'Ethernet0', 'queue': '3'}
    """
    port, _, index = name.removesuffix(":periodic").partition(":")
    if port.startswith("SWITCH"):
        return {"chip": port}
    own = {"port": names.get(port, port)}
    if not index:
        return own
    return own | {"queue" if table == "COUNTERS" else "priority": index}


Found = dict[tuple[str, Labels], float]


def wanted(table: str, objects: dict[str, Fields], names: dict[str, str]) -> Found:
    """What must come out of these objects."""
    found: Found = {}
    for name, fields in objects.items():
        if name.endswith(":periodic") and objects.get(name.removesuffix(":periodic")):
            continue  # the queue has a mark of its own
        for field, text in fields.items():
            meaning = meaning_of(field)
            assert (meaning is None) == is_listed(field), f"{field}: in one of both"
            if meaning is not None:
                labels = place_of(name, table, names) | meaning.labels
                key = meaning.metric, frozenset(labels.items())
                assert key not in found
                found[key] = WORDS[text] if text in WORDS else float(text)
    return found


def seen(samples: Iterable[Sample], *, but: tuple[str, ...] = ("fabric_port_info",)) -> Found:
    """What came out; a series that is there twice is an error."""
    found: Found = {}
    for each in samples:
        if each.series.metric in but:
            continue
        labels = dict(each.series.labels)
        own = frozenset((k, v) for k, v in labels.items() if k not in {"host", "device"} and v)
        key = each.series.metric, own
        assert key not in found, f"{key} is there twice"
        found[key] = float(each.value)
    return found


# --- recordings ----------------------------------------------------------------------------------


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((OTHERS / name).read_text("utf-8"))
    return found


def path_of(file: str) -> str:
    """The path that a recorded answer is to; empty for a file that is none."""
    fitting = [pattern for pattern in ANSWERS if fnmatch(file, pattern)]
    return ANSWERS[max(fitting, key=len)] if fitting else ""


def files() -> list[str]:
    return sorted(each.name for each in OTHERS.iterdir()) if OTHERS.is_dir() else []


def chassis() -> Databases:
    """The databases behind the recorded answers."""
    maps = ("PORT", "QUEUE", "PG", "FABRIC_PORT")
    counters = {
        f"COUNTERS_{name}_NAME_MAP": recorded(f"COUNTERS_{name}_NAME_MAP.txt") for name in maps
    }
    debug = "COUNTERS_DEBUG_NAME_SWITCH_STAT_MAP"
    counters[debug] = recorded(f"{debug}.txt")
    ports = counters["COUNTERS_PORT_NAME_MAP"]
    for name in ("Ethernet1", "Ethernet68"):
        counters[f"COUNTERS:{ports[name]}"] = recorded(f"COUNTERS_{name}.txt")
    counters[f"RATES:{ports['Ethernet89']}"] = recorded("RATES_oid_Ethernet89.txt")
    for table in ("COUNTERS", "PERIODIC_WATERMARKS"):
        for file in OTHERS.glob(f"{table}_oid_*.txt"):
            oid = file.stem.removeprefix(f"{table}_oid_")
            counters[f"{table}:oid:{oid}"] = recorded(file.name)
    names = recorded("COUNTERS_PORT_ALIAS_MAP.txt")
    table_of_ports = {key.replace("PORT|", "PORT_TABLE:"): fields for key, fields in names.items()}
    return {"CONFIG_DB": names, "COUNTERS_DB": counters, "APPL_DB": table_of_ports}


def leaf(round_: str = "") -> Databases:
    """Another recorded switch: three ports with FEC and rates."""
    counters = recorded(f"PORT_COUNTERS{round_}.txt") | recorded(f"PORT_RATES{round_}.txt")
    counters |= recorded("PORT_COUNTERS_MAPPING.txt")
    return {
        "CONFIG_DB": recorded("PORTS.txt"),
        "COUNTERS_DB": counters,
        "APPL_DB": recorded("PORT_TABLE.txt"),
    }


def leaf_later() -> Databases:
    return leaf("_TWO")


def aliases_of(databases: Databases) -> dict[str, str]:
    """The ports' own names by those on the front plate."""
    return {
        fields["alias"]: key.split("|")[1]
        for key, fields in databases["CONFIG_DB"].items()
        if key.startswith("PORT|")
    }


def bench_of(databases: Databases) -> Bench:
    """A switch whose ports' names are known."""
    bench = Bench()
    names = aliases_of(databases)
    bench.send("appl_db", "/PORT_TABLE", {own: {"alias": plate} for plate, own in names.items()})
    bench.sync("appl_db")
    return bench


@pytest.mark.parametrize("file", files())
def test_every_file_is_read_or_listed(file: str) -> None:
    is_read = bool(path_of(file)) or file in PORT_TABLES
    is_read |= any(fnmatch(file, pattern) for pattern in OBJECTS)
    is_listed_file = any(fnmatch(file, pattern) for pattern in WITHOUT_NUMBERS)
    assert is_read or is_listed_file, f"{file}: read it, or list it in unmapped.toml"


@pytest.mark.parametrize("file", [each for each in files() if path_of(each)])
def test_every_number_of_an_answer_comes_out_under_its_metric(file: str) -> None:
    path, databases = path_of(file), chassis()
    content = recorded(file)
    table, name = path.split("/")[:2]
    is_one = all(isinstance(value, str) for value in content.values())
    objects: dict[str, Fields] = {name: content} if is_one else content
    bench = bench_of(databases)
    bench.send("counters_db", f"/{path}", content)
    assert seen(bench.samples()) == wanted(table, objects, aliases_of(databases))


@pytest.mark.parametrize("make", [chassis, leaf, leaf_later])
def test_every_number_of_a_switch_comes_out_under_its_metric(
    make: Callable[[], Databases],
) -> None:
    """All that the profile asks for, from the double that answers as the server did."""
    databases = make()
    bench = bench_of(databases)
    bench.send_answers(databases, "counters_db")
    everything: Found = {}
    for path in AS_THE_SERVER_DID:
        if not path.rpartition("/")[2].startswith("SAI_"):  # which the profile has with the rest
            objects = answer(databases, "COUNTERS_DB", path.split("/"))
            everything |= wanted(path.split("/")[0], objects, aliases_of(databases))
    assert len(everything) > 80
    assert seen(bench.samples()) == everything


@pytest.mark.parametrize("path", AS_THE_SERVER_DID)
def test_the_double_answers_as_the_server_did(path: str) -> None:
    assert answer(chassis(), "COUNTERS_DB", path.split("/")) == recorded(AS_THE_SERVER_DID[path])


def test_every_reason_is_of_something_that_was_recorded() -> None:
    text = "".join((OTHERS / file).read_text("utf-8") for file in files())
    fields = set(re.findall(r'"([A-Za-z0-9_]+)": *"', text))
    unused = [each for each in WITHOUT_METRIC if not any(re.fullmatch(each, f) for f in fields)]
    unused += [each for each in WITHOUT_NUMBERS if not any(fnmatch(f, each) for f in files())]
    assert unused == []


def test_recorded_ports_are_the_same_by_either_name() -> None:
    both = []
    for file in (
        "COUNTERS_Ethernet_wildcard_expected.txt",
        "COUNTERS_Ethernet_wildcard_alias_expected.txt",
    ):
        bench = Bench()
        bench.send_answers(chassis(), "appl_db")
        bench.send("counters_db", "/COUNTERS/Ethernet*", recorded(file))
        both.append({(each.series, each.value) for each in bench.samples()})
    assert both[0] == both[1]
    assert {dict(series.labels)["port"] for series, _ in both[0]} >= {"Ethernet1", "Ethernet68"}


@pytest.mark.parametrize("file", PORT_TABLES)
def test_every_number_of_a_port_table_comes_out(file: str) -> None:
    bench, table = Bench(), recorded(file)
    bench.send("appl_db", "/PORT_TABLE", table)
    bench.sync("appl_db")
    everything: Found = {}
    for name, fields in table.items():
        port = frozenset({("port", name.partition(":")[2])})
        everything["fabric_port_mtu_bytes", port] = float(fields["mtu"])
        everything["fabric_port_rate_bits_per_second", port] = float(fields["speed"]) * 1e6
        everything["fabric_port_state", port] = {"up": 4.0, "down": 1.0}[fields["oper_status"]]
        everything["fabric_port_enabled", port] = {"up": 1.0, "down": 0.0}[fields["admin_status"]]
        if "flap_count" in fields:
            everything["fabric_port_carrier_changes_total", port] = float(fields["flap_count"])
    assert seen(bench.samples()) == everything


def test_a_recorded_port_that_went_down_is_an_event() -> None:
    bench = Bench()
    bench.send("appl_db", "/PORT_TABLE", recorded("PORT_TABLE.txt"))
    bench.sync("appl_db")
    bench.send("appl_db", "/PORT_TABLE", recorded("OPER_DOWN_PORT_TABLE.json"))
    downs = {each.labels["port"] for each in bench.read() if isinstance(each, Event)}
    assert downs == {"Ethernet0", "Ethernet80"}


def test_a_recorded_deletion_is_one() -> None:
    file = recorded("NEIGH_STATE_TABLE_key_deletion_57.txt")
    assert list(file.values()) == [{}]  # as the double sends it
