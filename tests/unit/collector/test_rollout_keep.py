"""The state of roll-outs on an agent's disk, step by step, and on disks that fail."""

import os
from pathlib import Path

import pytest

from collector.agent.rollout.keep import FAILED_KEPT_MAX, TRIES_MAX, Keeper
from collector.contract.errors import SettingsError
from collector.contract.rollout import Outcome


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_version_is_tried_kept_and_followed_by_the_next(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    assert (keeper.version, keeper.document()) == (0, None)
    keeper.begin(7, b"seven")
    assert (keeper.version, keeper.state.good, keeper.document()) == (7, 0, b"seven")
    assert keeper.passed(7)
    keeper.begin(8, b"eight")
    assert files(tmp_path) == {"state.json", "7.toml", "8.toml"}
    keeper.failed(8, "why")
    assert files(tmp_path) == {"state.json", "7.toml"}
    again = Keeper(tmp_path)
    assert again.recover() is None
    assert (again.version, again.document()) == (7, b"seven")
    assert again.state.failed == {8: "why"}


def test_a_start_breaks_a_trial_off_and_after_some_the_version_has_failed(tmp_path: Path) -> None:
    for attempt in range(1, TRIES_MAX + 1):
        Keeper(tmp_path).begin(7, b"seven")
        keeper = Keeper(tmp_path)
        found = keeper.recover()
        assert found is not None
        is_last = attempt == TRIES_MAX
        assert found[1] is (Outcome.FAILED if is_last else Outcome.INTERRUPTED)
        assert (keeper.version, keeper.state.trying) == (0, None)
        assert (7 in keeper.state.failed) is is_last


def test_another_trial_that_began_meanwhile_is_not_called_good(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.begin(7, b"seven")
    keeper.begin(8, b"eight")
    assert not keeper.passed(7)
    keeper.failed(7, "late news")
    assert keeper.version == 8


def test_a_document_that_a_disk_changed_is_not_used(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.begin(7, b"seven")
    (tmp_path / "7.toml").write_bytes(b"eight")
    with pytest.raises(SettingsError, match="SHA-256"):
        keeper.document()
    (tmp_path / "7.toml").unlink()
    with pytest.raises(SettingsError, match="No such file"):
        keeper.document()
    keeper.forget_good()
    assert keeper.state.good == 0


@pytest.mark.parametrize("content", [b"", b"{", b'{"good": "x"}', b"\xff" * 10])
def test_a_state_that_cannot_be_read_is_the_host_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.json").write_bytes(content)
    keeper = Keeper(tmp_path)
    assert (keeper.recover(), keeper.version) == (None, 0)


def test_a_full_disk_begins_no_trial_and_holds_up_no_way_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Keeper(tmp_path)
    keeper.begin(7, b"seven")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(SettingsError, match="No space left"):
            keeper.begin(8, b"eight")
        with pytest.raises(SettingsError, match="No space left"):
            keeper.passed(7)
        assert keeper.version == 7
        keeper.failed(7, "why")
        assert keeper.version == 0
    # The disk still has the trial, and the next start breaks it off.
    again = Keeper(tmp_path)
    assert again.recover() is not None
    assert again.version == 0


def test_what_failed_is_remembered_within_a_bound(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    for version in range(1, FAILED_KEPT_MAX + 5):
        keeper.failed(version, "why")
    assert len(keeper.state.failed) == FAILED_KEPT_MAX
    assert min(keeper.state.failed) == 5
