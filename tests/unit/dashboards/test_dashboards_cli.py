"""`fabricscope dashboards export` and `lint`."""

import builtins
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from collector.cli import main
from dashboards.grafana.boards import discover
from dashboards.grafana.classic import text_of, to_classic


def test_export_writes_what_the_generator_makes(tmp_path: Path) -> None:
    assert main(["dashboards", "export", "--out", str(tmp_path / "new")]) == 0
    written = {path.name: path.read_text("utf-8") for path in (tmp_path / "new").iterdir()}
    assert written == {f"{name}.json": text_of(name, board) for name, board in discover().items()}


def test_export_writes_only_what_is_asked_for(tmp_path: Path) -> None:
    assert main(["dashboards", "export", "--out", str(tmp_path), "--only", "fleet"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["fleet.json"]


def test_an_unknown_board_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["dashboards", "export", "--out", str(tmp_path), "--only", "fleat"]) == 2
    assert "did you mean 'fleet'?" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main(["dashboards", "export", "--out", str(file)]) == 2
    assert f"--out {file}" in capsys.readouterr().err


def test_our_dashboards_are_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboards", "lint"]) == 0, capsys.readouterr().out
    assert capsys.readouterr().out == f"{len(discover())} dashboards: well\n"


def test_flaws_of_a_file_name_file_panel_and_remedy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    dashboard: dict[str, Any] = to_classic("fleet", discover()["fleet"])
    panel = next(each for each in dashboard["panels"] if each["type"] != "row")
    panel["description"] = ""
    file = tmp_path / "mine.json"
    # As the API answers it.
    file.write_text(json.dumps({"dashboard": dashboard, "meta": {}}), "utf-8")
    assert main(["dashboards", "lint", str(file)]) == 1
    line, summary = capsys.readouterr().out.splitlines()
    assert line == (
        f"{file}: panel {panel['title']!r} (id {panel['id']}): it has no description; "
        "write what it shows and what is usual"
    )
    assert summary == "1 dashboard: 1 flaw"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000]
)
def test_a_file_that_is_no_dashboard_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "odd.json"
    file.write_bytes(content)
    assert main(["dashboards", "lint", str(file)]) == 2
    assert f"{file}: it is no dashboard's JSON" in capsys.readouterr().err


def test_a_file_that_is_too_long_is_not_read_to_its_end(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "long.json"
    with file.open("wb") as opened:
        opened.truncate((16 << 20) + 1)
    assert main(["dashboards", "lint", str(file)]) == 2
    assert "FILE_BYTES_MAX" in capsys.readouterr().err


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["dashboards", "lint", str(tmp_path / "none.json")]) == 2
    assert "none.json: No such file" in capsys.readouterr().err


def test_a_missing_parser_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = builtins.__import__

    def without(name: str, *more: Any) -> Any:  # noqa: ANN401 - as Python's own
        if name == "promql_parser":
            raise ModuleNotFoundError("No module named 'promql_parser'", name=name)
        return original(name, *more)

    monkeypatch.delitem(sys.modules, "promql_parser", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["dashboards", "lint"]) == 2
    assert "pip install 'fabricscope[server]'" in capsys.readouterr().err
