"""The command line: verbs, exit statuses, and the error for each mistake."""

import errno
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector import cli
from collector.agent import cli as agent_cli
from collector.contract.model import Reading, Sample, Series
from collector.doors.host import Host
from collector.sources import SourceSettings


class FileSource:
    """A source that reads one file."""

    name = "file"
    Settings = SourceSettings

    def __init__(self, settings: SourceSettings) -> None:
        self.settings = settings

    def read(self, host: Host) -> Iterator[Reading]:
        yield Sample(Series("fabric_port_number"), float(host.read("sys/number")), 0)


@pytest.fixture(autouse=True)
def no_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process sets up logging once, and in tests pytest does that."""
    monkeypatch.setattr(agent_cli, "set_up_logging", lambda _: None)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(agent_cli, "discover", lambda: {"file": FileSource})
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys" / "number").write_text("42\n")
    hostname = tmp_path / "proc" / "sys" / "kernel" / "hostname"
    hostname.parent.mkdir(parents=True)
    hostname.write_text("node-7\n")
    return tmp_path


def test_once_prints_one_read_of_a_captured_tree(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["agent", "--once", "--root", str(tree)]) == 0
    first = capsys.readouterr().out
    assert 'fabric_port_number{host="node-7"} 42\n' in first
    assert cli.main(["agent", "--once", "--root", str(tree)]) == 0
    assert capsys.readouterr().out == first


def test_once_with_a_broken_source_prints_the_rest_and_exits_1(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "sys" / "number").write_text("many")
    assert cli.main(["agent", "--once", "--root", str(tree), "--host", "n"]) == 1
    out, err = capsys.readouterr()
    assert 'fabric_agent_source_up{host="n",source="file"} 0\n' in out
    assert err.endswith("fabricscope: source failed: file\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["agnet"], "unknown verb 'agnet'; did you mean 'agent'?"),
        (["query"], "top, what-if. Try fabricscope --help"),
        (["demo", "--seconds", "-3"], "--seconds -3: must be above 0"),
        (["--verison"], "unknown option '--verison'; did you mean '--version'?"),
        (
            ["agent", "--onse"],
            "unknown option '--onse'; did you mean '--once'? Try fabricscope agent --help",
        ),
        (["agent", "--log-levl=info"], "unknown option '--log-levl'; did you mean '--log-level'?"),
        (["agent", "now"], "'now' is one word too many. Try fabricscope agent --help"),
        (
            ["token", "create", "x", "--scope", "read", "--requests-per-secnd", "3"],
            "did you mean '--requests-per-second'? Try fabricscope token create --help",
        ),
        (["token", "lst"], "unknown value 'lst'; did you mean 'list'?"),
        (["init", "servce"], "unknown value 'servce'; did you mean 'service'?"),
        (["demo", "--hosts", "9"], "argument --hosts: invalid choice: 9 (choose from 32, 16, 8)"),
        (["diagnose"], "required: PATH. Try fabricscope diagnose --help"),
        (["agent", "--root", "/nowhere"], "--root /nowhere: there is no such folder"),
        (["agent", "--config", "/nowhere.toml"], "/nowhere.toml: No such file or directory"),
        (["serve", "--port", "9800"], "unknown option '--port'; there are: --audit-expectations,"),
        (
            ["bench-pair", "a", "b", "--tool", "ib_wrte"],
            "argument --tool: unknown value 'ib_wrte'; there are: bandwidth, latency, nccl, tcp.",
        ),
        (["agent", "--flush-seconds", "x"], "command line: flush_seconds = 'x'"),
    ],
)
@pytest.mark.usefixtures("tree")
def test_mistakes_are_one_line_and_status_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("fabricscope: ")
    assert message in line


def test_a_root_that_is_no_captured_tree_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["agent", "--once", "--root", str(tmp_path)]) == 2
    assert "neither sys nor proc" in capsys.readouterr().err


def test_help_and_version_import_no_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert [verb for verb in cli.registered() if f"\n  {verb} " not in text] == []
    assert cli.main([]) == 2
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("fabricscope 0.")


def test_every_registered_verb_is_one_and_names_itself_once() -> None:
    verbs = cli.registered()
    files = sorted(Path(cli.__file__).parents[1].glob("*/verbs.toml"))
    assert sorted(file.parent.name for file in files) == sorted(cli.PACKAGES)
    assert len(verbs) == sum(file.read_text("utf-8").count("\n[") for file in files)
    for verb in verbs.values():
        module = importlib.import_module(verb.module)
        assert callable(module.add_arguments)
        assert callable(module.run)


@pytest.mark.parametrize("verb", ["serve", "demo"])
def test_a_verb_without_its_packages_says_what_to_install(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name}", name="fastapi")

    monkeypatch.setattr(importlib, "import_module", missing)
    assert cli.main([verb]) == 2
    assert capsys.readouterr().err == (
        f"fabricscope: {verb} needs fastapi, which is not installed: "
        "pip install 'fabricscope[server]'\n"
    )


def test_an_interrupt_is_status_130_and_no_trace(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(agent_cli, "read_once", interrupt)
    assert cli.main(["agent", "--once", "--root", str(tree)]) == 130
    assert capsys.readouterr().err == ""


def test_what_may_not_be_read_is_one_line_and_status_2(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/etc/shadow")

    monkeypatch.setattr(agent_cli, "read_once", refuse)
    assert cli.main(["agent", "--once", "--root", str(tree)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "fabricscope: /etc/shadow: Permission denied; run this as a user who may"
    )


def test_the_agent_s_verb_loads_neither_server_nor_client() -> None:
    """Listing verbs must stay quick, and an agent's install has no server packages."""
    code = (
        "import sys; from collector.cli import main; main(['--help']);"
        "print([name for name in ('httpx', 'fastapi', 'msgspec', 'api') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
