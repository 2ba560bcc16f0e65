"""The policy's file, edited while the service runs."""

from pathlib import Path

import pytest

from alerts.policy.model import Mode
from api.base.edited import SETTLED_SECONDS
from api.fleet.actions.policy import PolicyFile
from tests.stands.edited import write_aged

OLD_S = 3_600


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "policy.toml"
    write_aged(found, "mode = 'enforce'", OLD_S)
    return found


def test_a_file_that_has_just_been_emptied_is_not_taken_for_a_policy(path: Path) -> None:
    """Editors empty a file before they write it, and an empty file is a valid policy."""
    file = PolicyFile(str(path))
    write_aged(path, "", 0.0)
    assert file.refresh().mode is Mode.ENFORCE
    write_aged(path, "mode = 'shadow'", SETTLED_SECONDS + 1)
    assert file.refresh().mode is Mode.SHADOW


def test_a_broken_file_leaves_it_as_it_was_and_is_named(path: Path) -> None:
    file = PolicyFile(str(path))
    write_aged(path, "mode = 'on'", OLD_S - 1)
    assert file.refresh().mode is Mode.ENFORCE
    assert "mode = 'on'" in file.problem
    write_aged(path, "mode = 'off'", OLD_S - 2)
    assert file.refresh().mode is Mode.OFF
    assert file.problem == ""


def test_a_file_from_the_future_is_taken(path: Path) -> None:
    file = PolicyFile(str(path))
    write_aged(path, "mode = 'shadow'", -OLD_S)
    assert file.refresh().mode is Mode.SHADOW
