"""`tenant_limits` of a real service: what one token takes is refused by name, another's is not."""

from pathlib import Path

import httpx

from tests.stands import senders
from tests.stands.service import ServiceProcess

BOUND, FREE, ADMIN = "a-token-that-is-bounded", "a-token-that-is-free", "a-token-for-everything"
TOKENS = f"{BOUND} ingest,read hosts=* bounded\n{FREE} ingest,read hosts=* free\n{ADMIN}\n"
SETTINGS = """
token_file = "{tokens}"
rules_pack = false
own_numbers = false

[tenant_limits.bounded]
samples_a_second = 1
active_series = 100
query_samples_a_minute = 10
"""
MINUTE = 60
"""Samples at once that one a second allows."""


def series(count: int, mark: str) -> list[dict[str, str]]:
    return [{"__name__": "fabric_test_x", "mark": f"{mark}-{one}"} for one in range(count)]


def ask(service: ServiceProcess, token: str) -> httpx.Response:
    words = {"query": "count(last_over_time(fabric_test_x[5m]))"}
    return service.client.get("/api/v1/query", params=words, headers=senders.bearer(token))


def test_one_token_is_bounded_in_what_it_sends_and_asks_and_another_is_not(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKENS)
    config = tmp_path / "service.toml"
    config.write_text(SETTINGS.format(tokens=tmp_path / "tokens"))
    with ServiceProcess(tmp_path / "data", "--config", str(config)) as service:
        assert senders.remote(service, series(MINUTE + 1, "a"), BOUND).status_code == 204
        refused = senders.remote(service, series(1, "b"), BOUND)
        assert refused.status_code == 429, refused.text
        assert "tenant_limits.samples_a_second" in refused.text
        assert int(refused.headers["Retry-After"]) >= 1
        assert senders.remote(service, series(2 * MINUTE, "c"), FREE).status_code == 204

        # A query is charged for what it read, so that the next one waits.
        first = ask(service, BOUND)
        assert first.status_code == 200, first.text
        assert first.json()["data"]["result"][0]["value"][1] == str(3 * MINUTE + 1)
        refused = ask(service, BOUND)
        assert refused.status_code == 429, refused.text
        assert "tenant_limits.query_samples_a_minute" in refused.text
        assert ask(service, FREE).status_code == 200

        page = service.client.get("/metrics", headers=senders.bearer(ADMIN)).text
        assert f'fabric_service_tenant_samples_total{{tenant="bounded"}} {MINUTE + 1}.0' in page
        for rule in ("samples_a_second", "query_samples_a_minute"):
            name = f'fabric_service_tenant_refused_total{{rule="tenant_limits.{rule}"'
            assert f'{name},tenant="bounded"}} 1.0' in page, page
