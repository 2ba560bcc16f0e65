"""File provisioning and push make the same: data source, folder, dashboards."""

from pathlib import Path
from typing import Any

import yaml

from dashboards.grafana.boards import discover
from dashboards.grafana.connection import Target
from dashboards.grafana.push import FOLDER, PushSettings, slug, wanted_datasource

ROOT = Path(__file__).resolve().parents[3]
PROVISIONING = ROOT / "deploy/grafana/provisioning"


def read(name: str) -> dict[str, Any]:
    content = yaml.safe_load((PROVISIONING / name / "fabricscope.yaml").read_text("utf-8"))
    assert content["apiVersion"] == 1
    return dict(content)


def test_the_data_source_is_the_one_that_push_makes() -> None:
    (source,) = read("datasources")["datasources"]
    target = Target(url="http://grafana:3000", token="x")  # noqa: S106 - of no account
    settings = PushSettings(target=target, boards={}, service_url="http://127.0.0.1:9700")
    assert source == wanted_datasource(settings)


def test_a_token_for_the_service_is_given_as_push_gives_it() -> None:
    text = (PROVISIONING / "datasources/fabricscope.yaml").read_text("utf-8")
    with_token = yaml.safe_load(
        text.replace("# httpHeaderName1", "httpHeaderName1")
        .replace("# secureJsonData", "secureJsonData")
        .replace("#   httpHeaderValue1", "  httpHeaderValue1")
    )
    target = Target(url="http://grafana:3000", token="x")  # noqa: S106 - of no account
    settings = PushSettings(
        target=target,
        boards={},
        service_url="http://127.0.0.1:9700",
        service_token="$FABRICSCOPE_TOKEN",  # noqa: S106 - Grafana fills it in
    )
    assert with_token["datasources"] == [wanted_datasource(settings)]


def test_the_dashboards_go_into_the_folder_that_push_uses() -> None:
    (provider,) = read("dashboards")["providers"]
    assert (provider["folder"], provider["folderUid"]) == (FOLDER, slug(FOLDER))
    assert provider["type"] == "file"


def test_the_how_to_says_what_each_board_answers() -> None:
    text = (ROOT / "docs/how-to/use-grafana.md").read_text("utf-8")
    table = text.partition("| dashboard | what it answers |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = {f"| {board.title} | {board.question} |" for board in discover().values()}
    assert rows == set(table.splitlines())
