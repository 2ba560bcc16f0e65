"""Makers' tables: what a TOML may hold, how a switch is recognised, and the series of a row."""

import pytest

from collector.contract.catalog import load_catalog
from collector.contract.errors import CatalogError
from collector.switches.makers import Part, Switchbooks, load_shipped, parse_switch_file
from collector.switches.snmp.plans import Row, read_index
from collector.switches.snmp.switch import find_word

PROFILE = '[profile]\nname = "x"\n'
TABLE = """
[[tables]]
name = "t"
oid = "1.3.6.1.4.1.9"
index = ["interface"]
columns = [{{ column = 1, metric = "fabric_port_mtu_bytes"{more} }}]
"""


def test_every_shipped_file_has_the_name_that_it_gives_itself() -> None:
    for name, file in load_shipped().items():
        assert file.profile.name == name


def test_no_table_of_a_maker_has_the_name_of_another_table_of_its_switches() -> None:
    books = Switchbooks(load_shipped())
    for name in books.names:
        book = books.named(name)
        assert book is not None
        tables = [walk.name for walk in book.walks] + [each.name for each in book.sensors]
        assert len(set(tables)) == len(tables)


def test_repeated_columns_are_counted_from_zero() -> None:
    book = Switchbooks(load_shipped()).named("cumulus")
    assert book is not None
    (walk,) = [walk for walk in book.walks if walk.name == "cumulus-pfc"]
    pauses = {cell.oid[-1]: cell.labels for cell in walk.cells if cell.oid[-1] > 3}
    assert pauses[4] == pauses[5] == {"priority": "0"}
    assert pauses[18] == pauses[19] == {"priority": "7"}


@pytest.mark.parametrize(
    ("object_id", "description", "profile"),
    [
        ((1, 3, 6, 1, 4, 1, 30065, 1, 3011), "", "arista"),
        ((1, 3, 6, 1, 4, 1, 9, 12, 3), "", "cisco"),
        ((1, 3, 6, 1, 4, 1, 40310), "", "cumulus"),
        ((1, 3, 6, 1, 4, 1, 8072, 3, 2, 10), "Cumulus-Linux 5.9.2", "cumulus"),
        ((1, 3, 6, 1, 4, 1, 8072, 3, 2, 10), "SONiC Software Version: SONiC.202411", "sonic"),
        ((1, 3, 6, 1, 4, 1, 4413, 1, 2), '"SONiC Software Version: SONiC.4.4.1"', "sonic"),
        ((1, 3, 6, 1, 4, 1, 2636, 1), "", "juniper"),
        ((1, 3, 6, 1, 4, 1, 33049, 1), "", "onyx"),
        ((1, 3, 6, 1, 4, 1, 8072, 3, 2, 10), "Linux somewhere 6.1", "standard"),
        ((1, 3, 6, 1, 4, 1, 300651), "", "standard"),
        ((), "", "standard"),
    ],
)
def test_a_switch_is_recognised(object_id: tuple[int, ...], description: str, profile: str) -> None:
    assert Switchbooks(load_shipped()).find(object_id, description).profile.name == profile


@pytest.mark.parametrize(
    ("profile", "description", "model", "version"),
    [
        (
            "arista",
            "Arista Networks EOS version 4.33.6M running on an Arista Networks DCS-7280SR2A-48YC6",
            "DCS-7280SR2A-48YC6",
            "4.33.6M",
        ),
        (
            "sonic",
            "SONiC Software Version: SONiC.4.4.1 - HwSku: DELL-E3248P - D",
            "DELL-E3248P",
            "4.4.1",
        ),
        ("cumulus", "Cumulus-Linux 5.9.2 (Linux)", "", "5.9.2"),
        (
            "juniper",
            "Juniper Networks, Inc. qfx5130-32cd Switch, kernel JUNOS 22.2R3.13-EVO, Build",
            "qfx5130-32cd",
            "22.2R3.13-EVO",
        ),
    ],
)
def test_a_description_gives_model_and_version(
    profile: str, description: str, model: str, version: str
) -> None:
    own = load_shipped()[profile].profile
    assert find_word(own.model, description) == model
    assert find_word(own.version, description) == version


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("profile = 3", "profile"),
        (PROFILE + TABLE.format(more=", colour = 1"), "colour"),
        (PROFILE + TABLE.format(more=', labels = { queue = "1" }'), "no labels"),
        (PROFILE + TABLE.format(more=", bits = 16"), "bits"),
        (PROFILE + TABLE.format(more=", repeat = 8"), "label"),
        (PROFILE + TABLE.format(more=", where = { queue = 1 }"), "not in the index"),
        (PROFILE + TABLE.format(more=", values = { up = 1 }"), "by number"),
        (PROFILE + TABLE.format(more="").replace("fabric_port_mtu_bytes", "fabric_x_y"), "catalog"),
        (PROFILE + TABLE.format(more="").replace("mtu_bytes", "mtu_bytes, "), "catalog"),
        (PROFILE + TABLE.format(more="").replace('"interface"', '"chip"'), "no labels"),
        (PROFILE + TABLE.format(more="").replace('["interface"]', "[]"), "index"),
        (PROFILE + TABLE.format(more="").replace("1.3.6", "1.x.6"), "object identifier"),
        ('[profile]\nname = "x"\ndescriptions = ["("]\n', "pattern"),
        ('[profile]\nname = "x"\nmodel = "no group"\n', "one group"),
        ("not toml at all", "x.toml"),
    ],
)
def test_a_file_that_cannot_work_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(CatalogError, match=why):
        parse_switch_file(text, "x.toml")


def test_a_metric_of_the_switch_needs_no_interface() -> None:
    text = PROFILE + TABLE.format(more="").replace(
        "fabric_port_mtu_bytes", "fabric_switch_drops_total"
    )
    with pytest.raises(CatalogError, match="not a metric of what the index names"):
        parse_switch_file(text, "x.toml")


def test_switches_without_the_standard_tables_are_refused() -> None:
    with pytest.raises(CatalogError, match="standard"):
        Switchbooks({})


# --- indexes -------------------------------------------------------------------------------------

PORT = Part(name="interface")
TEXT = Part(name="chip", label="chip", text=True)


def test_an_index_becomes_labels() -> None:
    cast = Part(name="cast", label="cast", names={"0": "unicast"})
    queue = Part(name="queue", label="queue", add=-1)
    row = read_index((PORT, queue, cast), (7, 4, 0))
    assert row == Row(7, {"interface": 7, "queue": 4, "cast": 0}, {"queue": "3", "cast": "unicast"})
    row = read_index((PORT, queue, cast), (7, 4, 9))
    assert row is not None
    assert row.labels["cast"] == "9"


def test_a_text_in_an_index_has_its_length_before_it() -> None:
    row = read_index((TEXT, Part(name="n", label="drop_reason")), (2, 65, 66, 5))
    assert row == Row(None, {"n": 5}, {"chip": "AB", "drop_reason": "5"})


@pytest.mark.parametrize(
    ("parts", "index"),
    [
        ((PORT,), ()),
        ((PORT,), (1, 2)),
        ((PORT, Part(name="queue", label="queue", add=-1)), (1, 0)),
        ((TEXT,), (3, 65)),
        ((TEXT,), (0,)),
        ((TEXT,), (1, 999)),
        ((TEXT,), (2**31, 65)),
    ],
)
def test_an_index_of_another_shape_is_none(parts: tuple[Part, ...], index: tuple[int, ...]) -> None:
    assert read_index(parts, index) is None


def test_the_catalog_has_every_metric_that_sensors_give() -> None:
    catalog = load_catalog()
    for metric in ("receive_power_watts", "transmit_power_watts", "bias_amperes"):
        assert "lane" in catalog.labels_of(f"fabric_port_module_{metric}")
