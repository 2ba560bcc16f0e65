"""`fabricscope completion`: what a shell offers is what the parsers take."""

from __future__ import annotations

import shutil
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


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_theirs(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for name in registered():
        assert name in text
    assert "requests-per-second" in text
    program = shutil.which(shell)
    if program is not None:
        path = tmp_path / "script"
        path.write_text(text)
        subprocess.run([program, "-n", str(path)], check=True)
