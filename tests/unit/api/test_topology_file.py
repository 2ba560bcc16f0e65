"""Topologies and plans that people write: read whole, or refused with the place."""

import datetime as dt
import json
import re
from pathlib import Path

import pytest

from api.base import edited
from api.base.edited import SETTLED_SECONDS
from api.data.inventory.repository import Inventory
from api.fabric.cache import (
    CACHE_SECONDS_MAX,
    MOMENTS_CACHED_MAX,
    PRESENT_SECONDS,
    TopologyCache,
    WrittenFile,
)
from api.fabric.file import (
    Pattern,
    PatternKind,
    links_of,
    parse_end,
    parse_file,
    parse_speed,
    read_file,
    topology_of,
)
from api.fabric.model import NodeKind
from api.fabric.plan import Basis, Plan, plan_of, read_plan
from api.fabric.tiers import with_tiers
from api.http.settings import ServiceSettings
from collector.contract.errors import SettingsError
from collector.contract.identity import LinkId, PortId
from tests.stands.edited import write_aged
from tests.worlds.topologies import AT, simulated_topology

TEXT = """
[[nodes]]
name = "leaf-0"
kind = "switch"
rail = 3
attributes = { rack = "r17" }

[[links]]
a = "node-0/mlx5_0/1"
b = "leaf-0/Ethernet1%2F1"
speed = "400G"

[[links]]
a = "leaf-0/2"
b = "spine-0/1"
"""

LEAF_PORT = PortId("leaf-0", "leaf-0", "Ethernet1/1")


def test_a_file_is_a_topology() -> None:
    found = topology_of(parse_file(TEXT.encode(), is_json=False), AT)
    link = found.links[LinkId.between(PortId("node-0", "mlx5_0", "1"), LEAF_PORT)]
    assert (link.rate_bits_per_second, link.is_up, link.methods) == (400 * 10**9, None, ("file",))
    assert {name: node.kind for name, node in found.nodes.items()} == {
        "leaf-0": NodeKind.SWITCH,
        "node-0": NodeKind.HOST,
        "spine-0": NodeKind.SWITCH,
    }
    assert found.nodes["leaf-0"].attributes == {"rack": "r17"}
    assert with_tiers(found).nodes["spine-0"].tier == 1


def test_json_says_the_same(tmp_path: Path) -> None:
    whole = simulated_topology(topology="rail", hosts=4, nics_per_host=2)
    said = {"links": [{"a": str(link.id.a), "b": str(link.id.b)} for link in whole.links.values()]}
    path = tmp_path / "cables.json"
    path.write_text(json.dumps(said))
    assert topology_of(read_file(path), AT).links.keys() == whole.links.keys()
    assert read_plan(path).links == dict.fromkeys(whole.links)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("400G", 400e9), ("1.6 Tb/s", 1.6e12), ("ndr", 400e9), ("25GbE", 25e9), ("100Mbps", 1e8)],
)
def test_speeds_as_people_write_them(text: str, rate: float) -> None:
    assert parse_speed(text) == int(rate)


@pytest.mark.parametrize("text", ["", "fast", "400", "-400G", "4e2G", "0G", "9" * 99 + "G"])
def test_speeds_that_are_none(text: str) -> None:
    with pytest.raises(SettingsError, match="speed"):
        parse_speed(text)


def test_ends_as_people_write_them() -> None:
    assert parse_end("leaf-0/Ethernet1%2F1") == LEAF_PORT
    assert parse_end("leaf-0/leaf-0/Ethernet1%2F1") == LEAF_PORT
    assert parse_end("node-0/mlx5_0/1") == PortId("node-0", "mlx5_0", "1")


WRONG = [
    ("links = 3", "links"),
    ("[[links]]\na = 'x/1/1'", "missing required field"),
    ("[[links]]\na = 'x'\nb = 'y/1/1'", "link 1: 'x' is not a PortId"),
    ("[[links]]\na = 'x/1/1'\nb = 'x/1/1'", "link 1: a link joins two ports"),
    ("[[links]]\na = 'x//1'\nb = 'y/1/1'", "link 1"),
    ("[[links]]\na = 'x/1/1'\nb = 'y/1/1'\nspeed = 'warp'", "link 1: speed = 'warp'"),
    (
        "[[links]]\na = 'x/1/1'\nb = 'y/1/1'\n[[links]]\na = 'x/1/1'\nb = 'z/1/1'",
        "port x/1/1 has two links: 1 and 2",
    ),
    ("[[links]]\na = 'x/1/1'\nb = 'y/1/1'\ncolour = 'red'", "colour"),
    ("[nodes", "table declaration"),
    ("[pattern]\nkind = 'torus'", "torus"),
    ("[pattern]\nkind = 'fat-tree'\nlinks_per_spine = 0", "links_per_spine"),
    ("[pattern]\nkind = 'fat-tree'\nspeed = 'x'", "speed"),
    ("", "there is neither"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_cannot_be_read_is_refused_with_its_place(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as refused:
        read_plan(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000, b'{"links": [' * 9999])
def test_garbage_is_refused(content: bytes) -> None:
    for is_json in (False, True):
        with pytest.raises(SettingsError):
            parse_file(content, is_json=is_json)


def test_files_have_bounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "cables.toml"
    path.write_text(TEXT)
    monkeypatch.setattr("api.fabric.file.FILE_LINKS_MAX", 1)
    with pytest.raises(SettingsError, match="2 links; a file has at most 1"):
        read_file(path)
    monkeypatch.setattr("api.fabric.file.FILE_BYTES_MAX", 10)
    with pytest.raises(SettingsError, match="FILE_BYTES_MAX"):
        read_file(path)
    with pytest.raises(SettingsError, match="No such file"):
        read_file(tmp_path / "none.toml")


def test_a_node_needs_a_printable_name() -> None:
    said = parse_file(b'[[nodes]]\nname = "a\\u0007"', is_json=False)
    with pytest.raises(SettingsError, match="printable"):
        topology_of(said, AT)


def test_a_plan_is_links_or_a_pattern() -> None:
    pattern = '[pattern]\nkind = "rail-optimised"\nlinks_per_spine = 2\nspeed = "NDR"\n'
    plan = plan_of(parse_file(pattern.encode(), is_json=False))
    assert plan.pattern == Pattern(kind=PatternKind.RAIL_OPTIMISED, links_per_spine=2, speed="NDR")
    assert (plan.basis, plan.rate) == (Basis.PATTERN, 400 * 10**9)
    both = parse_file((pattern + TEXT).encode(), is_json=False)
    with pytest.raises(SettingsError, match="not both"):
        plan_of(both)
    assert links_of(both)
    assert Plan().basis is Basis.MAJORITY


def test_a_file_stands_in_where_nobody_can_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edited, "SETTLED_SECONDS", 0.0)
    cables = tmp_path / "cables.toml"
    cables.write_text(TEXT)
    now = 1_767_323_045.0
    inventory = Inventory(f"sqlite:///{tmp_path / 'inventory.db'}")
    inventory.migrate()
    try:
        cache = TopologyCache(inventory, lambda: now, file=str(cables))
        built = cache.at(None)
        assert LEAF_PORT in built.topology.link_of
        assert (cache.plan(), cache.at(None)) == (Plan(), built)
        ways = built.spread([(PortId("node-0", "mlx5_0", "1"), PortId("x", "y", "z"))])
        assert ways.start.tolist() == [0, 0]
        now += CACHE_SECONDS_MAX
        cables.write_text("[[links]]\n")
        with pytest.raises(SettingsError, match=r"cables\.toml: .*missing"):
            TopologyCache(inventory, lambda: now, file=str(cables)).at(None)
        assert LEAF_PORT in cache.at(None).topology.link_of, "as it was last sound"
        cables.unlink()
        now += CACHE_SECONDS_MAX
        assert LEAF_PORT in cache.at(None).topology.link_of
        (kept,) = inventory.quarantine.latest()
        assert (kept.road, kept.count) == ("topology", 2)
        assert re.search(r"cables\.toml: .*missing", kept.examples[0])
        assert "No such file" in kept.examples[1]
        with pytest.raises(SettingsError, match="No such file"):
            TopologyCache(inventory, lambda: now, file=str(cables)).at(None)
    finally:
        inventory.close()


FEWER = "[[nodes]]\nname = 'a'\n"


def test_a_file_that_is_being_written_is_not_read_again_yet(tmp_path: Path) -> None:
    """Half of the cables are valid cables: the others would seem to be gone."""
    path = tmp_path / "cables.toml"
    path.write_text(TEXT)
    file = WrittenFile(str(path))
    before = file.read()
    write_aged(path, FEWER, 0.0)
    assert file.read() is before
    write_aged(path, FEWER, SETTLED_SECONDS + 1)
    assert file.read() != before


def test_only_so_many_moments_are_kept(tmp_path: Path) -> None:
    inventory = Inventory(f"sqlite:///{tmp_path / 'inventory.db'}")
    inventory.migrate()
    try:
        cache = TopologyCache(inventory, lambda: 1.0)
        first = cache.at(AT)
        for hours in range(1, MOMENTS_CACHED_MAX):
            cache.at(AT + dt.timedelta(hours=hours))
        assert cache.at(AT) is first
        for hours in range(MOMENTS_CACHED_MAX, 2 * MOMENTS_CACHED_MAX):
            cache.at(AT + dt.timedelta(hours=hours))
        assert cache.at(AT) is not first
    finally:
        inventory.close()


def test_a_window_that_just_ended_sees_the_present(tmp_path: Path) -> None:
    inventory = Inventory(f"sqlite:///{tmp_path / 'inventory.db'}")
    inventory.migrate()
    try:
        cache = TopologyCache(inventory, lambda: AT.timestamp() + PRESENT_SECONDS)
        assert cache.seen_at(AT) is cache.at(None)
        assert cache.seen_at(None) is cache.at(None)
        before = AT - dt.timedelta(seconds=1)
        assert cache.seen_at(before) is cache.at(before) is not cache.at(None)
    finally:
        inventory.close()


def test_settings_refuse_a_plan_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(WRONG[0][0])
    for setting in ("topology_plan", "topology_file"):
        settings = ServiceSettings(data=str(tmp_path), **{setting: str(path)})  # type: ignore[arg-type]
        with pytest.raises(SettingsError, match=r"plan\.toml"):
            settings.check()
