"""`fabricscope init`: a whole configuration that the program accepts, as it is and filled in."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from api.http.settings import ServiceSettings, load_service_settings
from collector.agent.settings import AgentSettings, load_settings
from collector.cli import main
from collector.contract.errors import SettingsError
from collector.init_cli import SWITCH_SOURCES
from collector.sources import discover

SETTING = re.compile(r"^#(?=[a-z_]+ = )", re.MULTILINE)
"""A setting that is commented out; a note has a space after its #."""


def printed(what: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["init", what]) == 0
    return capsys.readouterr().out


def agent_settings(file: Path) -> AgentSettings:
    types = {name: source.Settings for name, source in discover().items()}
    return load_settings(types, file=file, environment={}, flags={})


@pytest.mark.parametrize("what", ["agent", "poller"])
@pytest.mark.parametrize("is_filled_in", [False, True], ids=["as printed", "filled in"])
def test_an_agent_accepts_it_and_it_changes_nothing(
    what: str, is_filled_in: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(what, capsys)
    file = tmp_path / "settings.toml"
    file.write_text(SETTING.sub("", text) if is_filled_in else text, "utf-8")
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    assert agent_settings(file) == agent_settings(empty)


@pytest.mark.parametrize("is_filled_in", [False, True], ids=["as printed", "filled in"])
def test_the_service_accepts_it_and_it_changes_nothing(
    is_filled_in: object,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FABRICSCOPE_DATA", "FABRICSCOPE_LISTEN"):
        monkeypatch.delenv(name, raising=False)
    text = printed("service", capsys)
    file = tmp_path / "service.toml"
    file.write_text(SETTING.sub("", text) if is_filled_in else text, "utf-8")
    assert load_service_settings(file, {}) == load_service_settings(None, {})


def test_every_setting_stands_there_with_its_note(capsys: pytest.CaptureFixture[str]) -> None:
    service = tomllib.loads(SETTING.sub("", printed("service", capsys)))
    assert service.keys() == set(ServiceSettings.__struct_fields__)
    agent = tomllib.loads(SETTING.sub("", printed("agent", capsys)))
    poller = tomllib.loads(SETTING.sub("", printed("poller", capsys)))
    assert agent.keys() == set(AgentSettings.__struct_fields__)
    assert poller["sources"].keys() == SWITCH_SOURCES
    assert agent["sources"].keys() | poller["sources"].keys() == discover().keys()
    assert "# Where batches go. Empty: nowhere" in printed("agent", capsys)


def test_a_mistake_in_a_filled_in_file_is_still_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(printed("agent", capsys).replace("#spool_dir =", "spool_dri ="), "utf-8")
    with pytest.raises(SettingsError, match="did you mean 'spool_dir'"):
        agent_settings(file)
