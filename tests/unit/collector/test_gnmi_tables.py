"""Profiles: files that map paths to metrics, checked against the catalog."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from collector.contract.catalog import Kind, load_catalog
from collector.contract.errors import CatalogError
from collector.sources.gnmi import Settings
from collector.switches.gnmi.decode import parse_path
from collector.switches.gnmi.feed import strip_module
from collector.switches.gnmi.leaves import ALIAS, SWITCH_INFO
from collector.switches.gnmi.tables import (
    DatabaseIndex,
    Leaf,
    StreamTable,
    YangIndex,
    parse_profile,
    profiles,
)

ROOT = Path(__file__).resolve().parents[3]
STREAMS = [
    pytest.param(stream, id=f"{name}-{stream.name}")
    for name, profile in profiles().items()
    for stream in profile.streams
]
INTERNAL_LABELS = {"component", "neighbour"}
"""They distinguish entries and do not become labels."""


def placeholders(path: str) -> set[str]:
    return {piece.partition("}")[0] for piece in path.split("{")[1:]}


@pytest.mark.parametrize("stream", STREAMS)
def test_every_leaf_is_a_metric_of_the_catalog_with_labels_that_it_has(stream: StreamTable) -> None:
    catalog = load_catalog()
    for group in stream.groups:
        for name, leaf in group.leaves.items():
            what = Leaf(metric=leaf) if isinstance(leaf, str) else leaf
            assert catalog.metric(what.metric), name
            labels = {*placeholders(group.path), *placeholders(name), *what.labels}
            assert labels - INTERNAL_LABELS <= catalog.labels_of(what.metric), name


@pytest.mark.parametrize("stream", STREAMS)
def test_every_row_is_an_info_of_the_catalog_with_labels_that_it_has(stream: StreamTable) -> None:
    catalog = load_catalog()
    for row in stream.rows:
        if row.metric in (ALIAS, SWITCH_INFO):
            continue
        metric = catalog.metric(row.metric)
        assert metric is not None
        assert metric.kind is Kind.INFO
        labels = {*placeholders(row.path), *row.labels, *row.fixed}
        assert labels - INTERNAL_LABELS <= catalog.labels_of(row.metric)


@pytest.mark.parametrize("stream", STREAMS)
def test_every_leaf_is_below_a_subscription(stream: StreamTable) -> None:
    """Else the switch never sends it."""

    def names(path: str) -> list[str]:
        return [strip_module(name) for name, _ in parse_path(path)]

    asked = [names(each.path) for each in stream.subscriptions]
    depth = 1 if stream.style == "database" else 99
    wanted = [names(f"{g.path}/{leaf}") for g in stream.groups for leaf in g.leaves]
    wanted += [
        names(f"{r.path}/{n}") for r in stream.rows for each in r.labels.values() for n in each
    ]
    for path in wanted:
        assert any(path[: len(each[:depth])] == each[:depth] for each in asked), path


def test_keys_give_labels() -> None:
    index = YangIndex(profiles()["openconfig"].streams[0])
    schema = "/qos/interfaces/interface/output/queues/queue/state/max-queue-len"
    keys: tuple[dict[str, str], ...] = (
        {},
        {},
        {"interface-id": "e1"},
        {},
        {},
        {"name": "UC3"},
        {},
        {},
    )
    (match,) = index.find(schema, keys)
    assert match.labels == (("port", "e1"), ("queue", "UC3"))


def test_fields_with_a_number_in_their_name_give_a_label() -> None:
    index = DatabaseIndex(profiles()["sonic"].streams[0])
    (match,) = index.find("COUNTERS", "Ethernet8", "SAI_PORT_STAT_PFC_5_TX_PKTS")
    assert match.labels == (("component", "Ethernet8"), ("priority", "5"))
    (match,) = index.find("COUNTERS", "etp1", "SAI_PORT_STAT_IF_IN_FEC_CODEWORD_ERRORS_S15")
    assert match.labels == (("component", "etp1"), ("symbol_errors", "15"))
    assert index.find("COUNTERS", "Ethernet*", "SAI_PORT_STAT_PFC_5_TX_PKTS") == []
    assert index.find("COUNTERS", "Ethernet8:1:periodic", "SAI_QUEUE_STAT_BYTES") == []


@pytest.mark.parametrize(
    "text",
    [
        "streams = 1",
        'help = "x"\nstreams = []',
        "help =",
        'help = "x"\nodd = 1',
        'help = "x"\nstreams = [{name="a", names_from="b", subscriptions=[], groups=[]}]',
    ],
)
def test_a_profile_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(CatalogError, match=r"tables/gnmi_x\.toml"):
        parse_profile(text, "gnmi_x.toml")


def test_the_examples_of_the_how_to_page_work() -> None:
    page = (ROOT / "docs/how-to/stream-from-switches.md").read_text("utf-8")
    settings, profile = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    table = tomllib.loads(settings)["sources"]["gnmi"]
    assert len(msgspec.convert(table, Settings).targets) == 2
    (stream,) = parse_profile(profile, "page").streams
    names = {
        each if isinstance(each, str) else each.metric
        for g in stream.groups
        for each in g.leaves.values()
    }
    assert all(load_catalog().metric(name) for name in names)
