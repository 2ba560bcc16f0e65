"""Runbooks as pages: the on-call person finds the page that an alert links to."""

import tomllib
from pathlib import Path

from api.http.settings import ServiceSettings
from tests.stands.service import in_process

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-decent-length"  # noqa: S105 - of a service that lives for a second


def test_runbooks_are_pages_that_need_no_token(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"{TOKEN}\n")
    settings = ServiceSettings(
        data=str(tmp_path), token_file=str(tmp_path / "tokens"), rules_pack=False, own_numbers=False
    )
    with in_process(tmp_path, settings=settings) as service:
        names = [path.stem for path in sorted((ROOT / "docs" / "runbooks").glob("*.md"))]
        index = service.client.get("/runbooks").text
        for name in names:
            assert f'href="/runbooks/{name}"' in index
        page = service.client.get(f"/runbooks/{names[0]}")
        assert page.headers["content-type"].startswith("text/html")
        assert "<h2>What it means</h2>" in page.text
        # Links between pages end as the files do.
        assert service.client.get(f"/runbooks/{names[0]}.md").text == page.text
        wrong = service.client.get("/runbooks/incidnt")
        assert wrong.status_code == 404
        assert "did you mean incident?" in wrong.json()["detail"]
        for path in ("/runbooks/../v1/hosts", "/runbooks/%2e%2e/x", "/runbooks/a/b", "/runbooksx"):
            assert service.client.get(path).status_code in {401, 404}


def test_runbooks_are_shipped_with_the_rules_that_link_to_them() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "runbooks/*.md" in data["tool"]["setuptools"]["package-data"]["alerts"]
    assert (ROOT / "alerts" / "runbooks").resolve() == ROOT / "docs" / "runbooks"
