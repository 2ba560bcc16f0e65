"""Neighbours from lldpcli's output, and what happens when it prints something else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.contract.model import Missing, Reading, Sample
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.sources import lldp
from collector.sources.lldp import Neighbour, parse_neighbours

LEAF = Neighbour("eth0", "leaf-0", "02:00:01:00:00:00", "Ethernet4", "Ethernet4")
CHASSIS_ID = {"type": "mac", "value": "02:00:01:00:00:00"}
PORT_ID = {"type": "ifname", "value": "Ethernet4"}


def as_json0(*interfaces: str) -> dict[str, Any]:
    """LEAF at these interfaces in the layout that never changes."""
    entries = [
        {
            "name": interface,
            "chassis": [{"id": [CHASSIS_ID], "name": [{"value": "leaf-0"}]}],
            "port": [{"id": [PORT_ID], "descr": [{"value": "to a host"}]}],
        }
        for interface in interfaces
    ]
    return {"lldp": [{"interface": entries}]}


def as_json(*interfaces: str) -> dict[str, Any]:
    """LEAF at these interfaces in the layout that depends on how many there are."""
    entry = {
        "chassis": {"leaf-0": {"id": CHASSIS_ID}},
        "port": {"id": PORT_ID, "descr": "to a host"},
    }
    listed: Any = [{interface: entry} for interface in interfaces]
    return {"lldp": {"interface": listed[0] if len(listed) == 1 else listed}}


def parse(document: object) -> tuple[list[Neighbour], int]:
    return parse_neighbours(json.dumps(document).encode())


@pytest.mark.parametrize("layout", [as_json0, as_json])
@pytest.mark.parametrize("interfaces", [("eth0",), ("eth0", "eth1"), ("eth0", "eth0")])
def test_both_layouts_are_equal_however_many_neighbours_there_are(
    layout: Callable[..., dict[str, Any]], interfaces: tuple[str, ...]
) -> None:
    found, flawed = parse(layout(*interfaces))
    assert found == [LEAF._replace(interface=interface) for interface in interfaces]
    assert flawed == 0


@pytest.mark.parametrize("document", [{"lldp": [{}]}, {"lldp": {}}, {"lldp": {"interface": []}}])
def test_no_neighbours(document: object) -> None:
    assert parse(document) == ([], 0)


def test_a_chassis_that_has_only_a_name_is_called_by_it() -> None:
    entry = {"name": "eth0", "chassis": {"name": {"value": "leaf-0"}}}
    assert parse({"lldp": {"interface": entry}}) == ([Neighbour("eth0", "leaf-0", "", "", "")], 0)


def test_a_neighbour_that_describes_itself_in_another_encoding_hides_no_other() -> None:
    text = json.dumps(as_json0("eth0", "eth1")).replace("to a host", "nach Süden", 1)
    found, flawed = parse_neighbours(text.replace("\\u00fc", "ü").encode("latin-1"))
    assert ([each.interface for each in found], flawed) == (["eth0", "eth1"], 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["interface", "name", "chassis", "id", "port", "value", "eth0"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


@given(JSON)
def test_whatever_stands_there_neighbours_have_a_name_that_is_safe_in_a_path(thing: object) -> None:
    for each in parse({"lldp": thing})[0]:
        assert "/" not in each.interface
        assert each.interface not in {"", ".", ".."}
        assert all(text.isprintable() for text in each)


@given(st.binary(max_size=200))
def test_what_is_no_json_is_a_value_error_and_nothing_else(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_neighbours(b"x" + text)


def test_a_text_that_is_too_long_or_too_deep_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="TEXT_BYTES_MAX"):
        parse_neighbours(b" " * (lldp.TEXT_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="no JSON"):
        parse_neighbours(b'{"lldp":' + b"[" * 200_000)


# --- the program ---------------------------------------------------------------------------------


def read(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> list[Reading]:
    """The source's readings on this machine when lldpcli is this shell script."""
    program = folder / "lldpcli"
    program.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    host = Host()
    try:
        return list(lldp.Lldp(lldp.Settings()).read(host))
    finally:
        host.close()


def test_a_daemon_that_does_not_run_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = 'echo "[WARN/control] unable to connect to socket: No such file" >&2; exit 1'
    [missing] = read(monkeypatch, tmp_path, script)
    assert isinstance(missing, Missing)
    assert missing.reason is UnreadReason.UNREADABLE
    assert "unable to connect" in missing.detail


def test_an_older_program_is_asked_in_its_own_format(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = json.dumps(as_json("no-such-interface"))
    script = f"""[ "$2" = json ] && echo '{answer}' && exit; echo 'unknown format' >&2; exit 1"""
    [sample] = read(monkeypatch, tmp_path, script)
    assert isinstance(sample, Sample)
    assert dict(sample.series.labels) == {
        "device": "no-such-interface",
        "port": "1",
        "method": "lldp",
        "peer_name": "leaf-0",
        "peer_chassis": "02:00:01:00:00:00",
        "peer_port": "Ethernet4",
        "peer_port_id": "Ethernet4",
    }


def test_a_program_that_hangs_is_stopped_and_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lldp, "COMMAND_SECONDS", 0.05)
    [missing] = read(monkeypatch, tmp_path, "exec sleep 60")
    assert isinstance(missing, Missing)
    assert missing.reason is UnreadReason.TIMEOUT


def test_more_neighbours_than_a_host_can_have_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "commands"
    folder.mkdir()
    names = [f"eth{number}" for number in range(lldp.NEIGHBOURS_MAX + 3)]
    file = folder / "lldpcli -f json0 show neighbors"
    file.write_text(json.dumps(as_json0(*names)), "utf-8")
    missing, *samples = lldp.Lldp(lldp.Settings()).read(Host(tmp_path))
    assert isinstance(missing, Missing)
    assert missing.detail == "3 neighbours over NEIGHBOURS_MAX = 256 are left out"
    assert len(samples) == lldp.NEIGHBOURS_MAX
