"""Which faults the demo shows, and which arguments it refuses."""

import argparse
import os
import re
import socket
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from collector.contract.errors import FabricscopeError, SettingsError
from collector.contract.targets import check_folder
from simulator.demo import cli, folders
from simulator.demo.folders import folders_for
from simulator.demo.menu import (
    FAULT_SECONDS,
    FIRST_SECONDS,
    PAUSE_SECONDS,
    SHOWN,
    Menu,
    choose_faults,
    showable,
)
from simulator.demo.programs import Programs, Stop, free_port
from simulator.demo.run import HOSTS, hosts_by_cores, make_cluster
from simulator.demo.story import name_of
from simulator.score import cli as score_cli
from simulator.topology.model import Fabric

KNOWN = showable()
ROCE = make_cluster(Fabric.ROCE)


def choose(*named: str, everything: bool = False) -> list[str]:
    return [fault.name for fault in choose_faults(KNOWN, named, ROCE, everything=everything)]


def test_without_a_wish_a_few_faults_take_turns() -> None:
    assert choose() == list(SHOWN)


def test_named_faults_come_in_their_order_and_all_means_all() -> None:
    assert choose("thermal_throttle", "slow_nic") == ["thermal_throttle", "slow_nic"]
    assert choose(everything=True) == [n for n, fault in KNOWN.items() if fault.fits(ROCE)]


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("fabric", list(Fabric), ids=str)
def test_every_fault_of_the_menu_has_a_place_in_the_cluster(fabric: Fabric, hosts: int) -> None:
    cluster = make_cluster(fabric, hosts)
    faults = choose_faults(KNOWN, (), cluster, everything=True)
    assert len(faults) > 20
    for fault in faults:
        place = fault.choose(cluster, np.random.default_rng(1))
        assert name_of(fault.culprits(cluster, place))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("slow_nik", "did you mean 'slow_nic'"),
        ("telemetry_loss", "the agents are real"),
    ],
)
def test_a_fault_that_cannot_be_shown_is_refused_with_its_reason(name: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        choose(name)


def test_a_fault_of_the_other_fabric_is_refused() -> None:
    name = next(name for name, fault in KNOWN.items() if fault.fabrics == ("roce",))
    with pytest.raises(SettingsError, match="cannot happen here, on infiniband"):
        choose_faults(KNOWN, [name], make_cluster(Fabric.INFINIBAND), everything=False)


def test_faults_come_one_after_the_other_with_a_pause_between() -> None:
    menu = Menu([KNOWN["slow_nic"], KNOWN["host_steal"]], ROCE, seed=1)
    served = [one for second in range(400) if (one := menu.serve(float(second)))]
    assert [one.fault.name for one in served[:3]] == ["slow_nic", "host_steal", "slow_nic"]
    assert served[0].start_s == FIRST_SECONDS
    for one, following in pairwise(served):
        assert FAULT_SECONDS[0] <= one.end_s - one.start_s <= FAULT_SECONDS[1]
        assert PAUSE_SECONDS <= following.start_s - one.end_s <= PAUSE_SECONDS + 1


def test_the_same_seed_breaks_the_same_things() -> None:
    def served(seed: int) -> list[object]:
        menu = Menu([KNOWN["slow_nic"]], ROCE, seed)
        found = [one for second in range(400) if (one := menu.serve(float(second)))]
        return [(one.place, one.end_s, one.strength) for one in found]

    assert served(1) == served(1)
    assert served(1) != served(2)


def test_a_quiet_menu_serves_nothing() -> None:
    assert Menu([], ROCE, seed=1).serve(1e6) is None


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--quiet", "--fault", "slow_nic"], "--quiet and --fault contradict"),
        (["--faults", "all", "--fault", "slow_nic"], "contradict"),
        (["--port", "70000"], "from 0 to 65535"),
        (["--seed", "-1"], "0 or more"),
        (["--svg", "/no/such/folder/x.svg"], "there is no folder"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(words: list[str], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        cli.run(arguments(*words))


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (cli.run, ["--svg", "picture.svg"]),
        (score_cli.run, ["healthy", "--out", "results/of/today"]),
    ],
)
def test_where_nothing_can_be_written_is_said_before_anything_starts(
    run: Callable[[argparse.Namespace], int],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    parser = argparse.ArgumentParser()
    (cli if run is cli.run else score_cli).add_arguments(parser)
    with pytest.raises(SettingsError, match=f"{words[-1]}: no permission to write there"):
        run(parser.parse_args(words))


def test_a_file_is_no_folder_for_results(tmp_path: Path) -> None:
    file = tmp_path / "score.json"
    file.touch()
    with pytest.raises(SettingsError, match=f"{file} is a file; name a folder"):
        check_folder(file / "today")


def test_the_list_has_every_fault_and_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments("--list")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(KNOWN)
    assert lines[0].endswith(next(iter(KNOWN.values())).title)


def test_a_folder_that_is_used_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(SettingsError, match="not empty"), folders_for(tmp_path):
        pytest.fail("it was taken")
    file = tmp_path / "thesis.tex"
    with pytest.raises(SettingsError, match="thesis"), folders_for(file):
        pytest.fail("it was taken")


def test_a_temporary_folder_is_gone_afterwards_and_a_named_one_stays(tmp_path: Path) -> None:
    with folders_for(None) as temporary:
        for folder in temporary:
            (folder / "x").touch()
    assert not any(folder.exists() for folder in temporary)
    with folders_for(tmp_path / "new") as named:
        (named.hosts / "x").touch()
    assert (tmp_path / "new/hosts/x").exists()


def test_where_memory_is_scarce_hosts_are_written_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MEMORY", tmp_path)
    monkeypatch.setattr(folders, "MEMORY_BYTES_MIN", 0)
    assert folders.memory_folder() == tmp_path
    monkeypatch.setattr(folders, "MEMORY_BYTES_MIN", 1 << 62)
    assert folders.memory_folder() is None
    monkeypatch.setattr(folders, "MEMORY", tmp_path / "missing")
    assert folders.memory_folder() is None


def test_a_port_that_is_taken_is_replaced_by_another() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        assert free_port(taken) not in {0, taken}
    assert free_port(taken) == taken


def test_a_wait_ends_when_an_end_is_wanted() -> None:
    stop = Stop()
    assert not stop.wait(0.01)
    stop.want()
    before = time.monotonic()
    assert stop.wait(60)
    assert time.monotonic() - before < 5


def last_words(programs: Programs) -> str:
    """The error that reports the first program that ends."""
    for _ in range(1200):
        try:
            programs.check()
        except FabricscopeError as error:
            return str(error)
        time.sleep(0.05)
    pytest.fail("no program ended within a minute")


def test_a_program_that_ends_by_itself_is_told_with_its_last_words(tmp_path: Path) -> None:
    with Programs(tmp_path) as programs:
        programs.start("node0007", "agent", ["--root", "/no/such/folder"])
        assert re.fullmatch(r"node0007 ended by itself \(2\): .*no such.*", last_words(programs))


def test_settings_of_the_user_are_not_for_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo's agent ignores the user's wrong setting and reports the wrong argument."""
    monkeypatch.setenv("FABRICSCOPE_AGENT_LISTEN", "nonsense")
    (tmp_path / "proc").mkdir()
    with Programs(tmp_path) as programs:
        programs.start("x", "agent", ["--root", str(tmp_path), "--flush-seconds", "-1"])
        assert "flush_seconds" in last_words(programs)


def test_a_small_machine_gets_fewer_hosts() -> None:
    assert [hosts_by_cores(cores) for cores in (1, 2, 4, 64)] == [16, 16, 32, 32]
