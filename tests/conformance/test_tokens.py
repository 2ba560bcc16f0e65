"""Who is let in: with tokens set, nobody without one; at the door, everybody."""

import json
from itertools import product
from pathlib import Path

from api.settings import ServiceSettings
from tests import remote_write as rw
from tests.service import in_process

DOCUMENT = Path(__file__).parents[1] / "fixtures" / "openapi.json"
TOKEN = "a-token-of-decent-length"  # noqa: S105 - of a service that lives for a second
SECOND = "another-token-of-decent-length"
DOOR = {"/healthz", "/readyz"}
WRONG = ("", "Bearer", f"Basic {TOKEN}", "Bearer wrong", f"Bearer {TOKEN}x", TOKEN)


def test_a_token_is_asked_for_everywhere_but_at_the_door(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"{TOKEN}\n{SECOND}\n")
    settings = ServiceSettings(data=str(tmp_path), token_file=str(tmp_path / "tokens"))
    documented = json.loads(DOCUMENT.read_text("utf-8"))["paths"]
    with in_process(tmp_path, settings=settings) as guarded:
        client = guarded.client
        for path in DOOR:
            assert client.get(path).status_code == 200
        for path in {*documented, "/docs", "/openapi.json", "/nothing"} - DOOR:
            for method, words in product(("GET", "POST"), WRONG):
                answer = client.request(method, path, headers={"Authorization": words})
                assert answer.status_code == 401, (method, path, words)
                assert answer.headers["www-authenticate"] == "Bearer"
                assert answer.headers["content-type"] == "application/problem+json"
                assert TOKEN not in answer.text
        for words in (f"Bearer {TOKEN}", f"bearer  {TOKEN}", f"Bearer {SECOND}"):
            assert client.get("/v1/hosts", headers={"Authorization": words}).status_code == 200
        odd = client.get("/v1/hosts", headers={b"Authorization": b"Bearer \xff\xfe"})
        assert odd.status_code == 401
        body = rw.snappy(rw.request_v1([]))
        assert client.post("/api/v1/write", content=body, headers=rw.V1_HEADERS).status_code == 401
        own = {**rw.V1_HEADERS, "Authorization": f"Bearer {TOKEN}"}
        assert client.post("/api/v1/write", content=body, headers=own).status_code == 204
