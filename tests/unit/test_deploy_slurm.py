"""What is shipped for Slurm: scripts that parse, lines that name them, a policy that is one."""

import argparse
import configparser
import os
import subprocess
from pathlib import Path

import pytest

from alerts.policy.file import parse_policy
from alerts.policy.model import Mode
from api.remote.slurm.cli import add_arguments
from tests.stands.environment import clean_environment

FOLDER = Path(__file__).parents[2] / "deploy" / "slurm"
SCRIPTS = ("healthcheck", "prolog", "epilog")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_calls_the_verb_that_it_is_named_for(name: str, tmp_path: Path) -> None:
    script = FOLDER / name
    assert os.access(script, os.X_OK)
    text = script.read_text()
    assert "/opt/fabricscope/bin/fabricscope" in text
    fake = tmp_path / "fabricscope"
    fake.write_text('#!/bin/sh\necho "$FABRICSCOPE_SERVICE $@"\n')
    fake.chmod(0o755)
    here = tmp_path / name
    here.write_text(text.replace("/opt/fabricscope/bin/fabricscope", str(fake)))
    done = subprocess.run(
        ["sh", str(here)], capture_output=True, text=True, check=True, env=clean_environment()
    )
    url, *words = done.stdout.split()
    assert url == "http://127.0.0.1:9700"
    parse(words)


def parse(words: list[str]) -> None:
    """Raise SystemExit unless the verb takes these words."""
    assert words[0] == "slurm"
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_arguments(parser)
    parser.parse_args(words[1:])


def test_slurm_s_lines_name_scripts_that_are_there() -> None:
    lines = (FOLDER / "slurm.conf.example").read_text().splitlines()
    pairs = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    named = [pairs[key] for key in ("HealthCheckProgram", "PrologSlurmctld", "EpilogSlurmctld")]
    assert named == [f"/etc/fabricscope/slurm/{name}" for name in SCRIPTS]
    assert (FOLDER / "README.md").read_text().count("deploy/slurm/healthcheck") == 1


def test_the_executor_s_unit_only_prints_until_somebody_says_otherwise() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(FOLDER / "fabricscope-slurm.service")
    command = unit["Service"]["ExecStart"].split()
    assert command[0] == "/opt/fabricscope/bin/fabricscope"
    parse(command[1:])
    assert "--apply" not in command
    assert unit["Service"]["NoNewPrivileges"] == "yes"


def test_the_example_policy_is_one() -> None:
    policy = parse_policy((FOLDER / "policy.toml").read_text(), "policy.toml")
    modes = [policy.mode_of(rule) for rule in policy.rules]
    assert modes == [Mode.ENFORCE, Mode.APPROVE, Mode.SHADOW]
