"""`fabricscope completion`: what a shell offers is what the parsers take."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from collector.cli import main, registered
from collector.completion_cli import nodes


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For bash."""
    path = tmp_path_factory.mktemp("completion") / "fabricscope.bash"
    with pytest.MonkeyPatch.context() as patch, path.open("w") as file:
        patch.setattr("sys.stdout", file)
        assert main(["completion", "bash"]) == 0
    return path


PRINT = 'printf "%s\\n" "${COMPREPLY[@]}"'


def offered(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in ("fabricscope", *words))
    done = subprocess.run(
        [
            "bash",
            "-c",
            f'source "$0"; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _fabricscope; {PRINT}',
            str(script),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_verbs_and_their_options_are_offered(script: Path) -> None:
    assert set(offered(script, "")) == {*registered(), "--help", "--version"}
    assert offered(script, "dia") == ["diagnose"]
    assert offered(script, "--ver") == ["--version"]
    assert {"--json", "--html", "--against"} <= set(offered(script, "diagnose", "--"))
    assert offered(script, "token", "") == ["create", "list", "revoke", "-h", "--help"]
    assert "--requests-per-second" in offered(script, "token", "create", "--re")
    assert offered(script, "init", "") == ["agent", "service", "poller", "-h", "--help"]


def test_values_of_options_are_their_choices_or_files(script: Path) -> None:
    assert offered(script, "agent", "--log-level", "w") == ["warning"]
    assert set(offered(script, "token", "create", "x", "--scope", "")) == {
        "ingest",
        "read",
        "operate",
        "admin",
    }
    assert offered(script, "diagnose", "--html", "") == [], "bash offers files then"


def test_everything_that_a_parser_takes_is_offered(script: Path) -> None:
    """In one shell: to start one for each would take minutes."""
    asked = [node for node in nodes() if node.words]
    lines = "\n".join(
        f"COMP_WORDS=(fabricscope {' '.join(node.path)} ''); COMP_CWORD={len(node.path) + 1}; "
        '_fabricscope; echo "${COMPREPLY[@]}"'
        for node in asked
    )
    done = subprocess.run(
        ["bash", "-c", f'source "$0"\n{lines}', str(script)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split() for line in done.stdout.splitlines()] == [node.words for node in asked]
    assert {node.path[0] for node in asked if node.path} == registered().keys()


ZSH = """
compadd() { shift; print -l -- $@ }
_files() { print FILES }
compdef() { }
source "$1"
shift
words=(fabricscope "$@") CURRENT=$(($# + 1)) PREFIX=$@[-1]
_fabricscope
"""
"""zsh's own words for what is offered are printed instead; it would choose among them by PREFIX."""


def printed(shell: str, tmp_path: Path) -> Path:
    path = tmp_path / f"script.{shell}"
    with pytest.MonkeyPatch.context() as patch, path.open("w") as file:
        patch.setattr("sys.stdout", file)
        assert main(["completion", shell]) == 0
    return path


def offered_by_zsh(script: Path, *words: str) -> list[str]:
    done = subprocess.run(
        ["zsh", "-f", "-c", ZSH, "zsh", str(script), *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.peer("zsh")
def test_zsh_offers_verbs_choices_and_files_where_they_fit(tmp_path: Path) -> None:
    script = printed("zsh", tmp_path)
    assert set(offered_by_zsh(script, "")) == {*registered(), "--help", "--version"}
    assert offered_by_zsh(script, "init", "") == ["agent", "service", "poller", "-h", "--help"]
    assert "warning" in offered_by_zsh(script, "agent", "--log-level", "")
    assert offered_by_zsh(script, "diagnose", "--html", "") == ["FILES"]
    assert offered_by_zsh(script, "diagnose", "")[-1] == "FILES"
    assert "FILES" not in offered_by_zsh(script, "demo", ""), "it takes no word of one's own"


@pytest.mark.peer("fish")
def test_fish_offers_verbs_choices_and_files_where_they_fit(tmp_path: Path) -> None:
    script = printed("fish", tmp_path)
    (tmp_path / "some-file").touch()

    def offered_by_fish(line: str) -> dict[str, str]:
        done = subprocess.run(
            ["fish", "-N", "-c", 'source $argv[1]; complete -C "$argv[2]"', str(script), line],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        )
        assert done.stderr == ""
        return dict((row + "\t").split("\t")[:2] for row in done.stdout.splitlines())

    assert offered_by_fish("fabricscope ").keys() == registered().keys()
    assert offered_by_fish("fabricscope init ").keys() == {"agent", "service", "poller"}
    levels = offered_by_fish("fabricscope agent --log-level ").keys()
    assert "warning" in levels
    assert "some-file" not in levels
    assert "some-file" in offered_by_fish("fabricscope agent --config ")
    assert "some-file" in offered_by_fish("fabricscope diagnose ")
    options = offered_by_fish("fabricscope incident list --")
    assert "http://127.0.0.1:9700" in options["--service"], "a default stands in its place"
