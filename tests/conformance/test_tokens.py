"""Access with tokens required: none without a token, and with one only within its scopes."""

import datetime as dt
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest

from api.base.limits import TOKENS_KEPT_DAYS
from api.data.inventory import tokens as tokens_tables
from api.data.inventory.records import DeviceKind
from api.data.inventory.repository import Inventory
from api.data.inventory.sightings import Observation, Sighting
from api.data.inventory.token_model import Scope, Token
from api.http.settings import ServiceSettings
from api.http.tokens.scopes import INCLUDED, SCOPES
from api.http.tokens.wish import Wish, issue
from tests.stands.service import InProcess, in_process
from tests.stands.strangers import JSON
from tests.worlds import remote_write as rw

DOCUMENT = Path(__file__).parents[1] / "fixtures" / "openapi.json"
TOKEN = "a-token-of-decent-length"  # noqa: S105 - of a service that lives for a second
SECOND = "another-token-of-decent-length"
DOOR = {"/healthz", "/readyz"}
SIGNED = {"/v1/pagerduty/{receiver}", "/v1/slack/{receiver}"}
"""Ask for a signature in place of a token: `test_pagerduty_events.py`, `test_slack_actions.py`."""
WRONG = ("", "Bearer", f"Basic {TOKEN}", "Bearer wrong", f"Bearer {TOKEN}x", TOKEN)
NOW = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    folder = tmp_path_factory.mktemp("guarded")
    lines = [TOKEN, SECOND, *(f"token-of-{scope}-only {scope} {scope}er" for scope in Scope)]
    (folder / "tokens").write_text("\n".join(lines))
    settings = ServiceSettings(
        data=str(folder),
        token_file=str(folder / "tokens"),
        rules_pack=False,
        own_numbers=False,
    )
    with in_process(folder, settings=settings) as running:
        yield running


# --- the door -----------------------------------------------------------------------------------


def test_a_token_is_asked_for_everywhere_but_at_the_door(guarded: InProcess) -> None:
    documented = json.loads(DOCUMENT.read_text("utf-8"))["paths"]
    client = guarded.client
    for path in DOOR:
        assert client.get(path).status_code == 200
    for path in {*documented, "/docs", "/openapi.json", "/nothing"} - DOOR - SIGNED:
        for method, words in product(("GET", "POST"), WRONG):
            answer = client.request(method, path, headers={"Authorization": words})
            assert answer.status_code == 401, (method, path, words)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.headers["content-type"] == "application/problem+json"
            assert TOKEN not in answer.text
    for words in (f"Bearer {TOKEN}", f"bearer  {TOKEN}", f"Bearer {SECOND}"):
        assert client.get("/v1/hosts", headers={"Authorization": words}).status_code == 200
    odd = client.get("/v1/hosts", headers={b"Authorization": b"Bearer \xff\xfe"})
    assert odd.status_code == 401
    body = rw.snappy(rw.request_v1([]))
    assert client.post("/api/v1/write", content=body, headers=rw.V1_HEADERS).status_code == 401
    own = {**rw.V1_HEADERS, **bearer(TOKEN)}
    assert client.post("/api/v1/write", content=body, headers=own).status_code == 204


def test_a_missing_token_and_a_wrong_one_are_told_apart(guarded: InProcess) -> None:
    missing = guarded.client.get("/v1/hosts")
    assert missing.headers["www-authenticate"] == "Bearer"
    assert missing.json()["rule"] == "no_token"
    wrong = guarded.client.get("/v1/hosts", headers=bearer("fsc_0123456789ab_" + "x" * 43))
    assert wrong.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    assert wrong.json()["rule"] == "unknown_token"


def ask(client: httpx.Client, line: str, token: str) -> httpx.Response:
    method, path = line.split(" ")
    # Streams go on for ever; a client that is refused gets an answer that ends.
    with client.stream(method, path, headers=bearer(token)) as answer:
        if answer.status_code == 403:
            answer.read()
        return answer


@pytest.mark.parametrize("held", list(Scope))
def test_each_scope_opens_its_routes_and_no_other(guarded: InProcess, held: Scope) -> None:
    for line, needed in SCOPES.items():
        answer = ask(guarded.client, line, f"token-of-{held}-only")
        if needed in INCLUDED[held]:
            assert answer.status_code not in {401, 403}, line
            continue
        assert answer.status_code == 403, line
        problem = answer.json()
        assert problem["rule"] == "scope"
        assert f"{line} needs a token with scope {needed}; '{held}er' has" in problem["detail"]
        challenge = f'Bearer error="insufficient_scope", scope="{needed}"'
        assert answer.headers["www-authenticate"] == challenge


def test_a_caller_may_ask_what_its_token_may_do(guarded: InProcess) -> None:
    told = guarded.client.get("/v1/whoami", headers=bearer("token-of-operate-only")).json()
    assert told == {"name": "operateer", "allowed": ["operate", "read"], "incident": ""}


def test_an_audit_trail_names_the_token_beside_whoever_signs(guarded: InProcess) -> None:
    """A client can write any name into `by`."""
    now = dt.datetime.now(dt.UTC)
    seen = Sighting(host="node1", kind=DeviceKind.GPU, device="0")
    guarded.inventory.observe([Observation.at(seen, now)])
    said = {"state": "draining", "reason": "new cable", "by": "ada"}
    own, path = bearer("token-of-operate-only"), "/v1/hosts/node1/hold"
    held = guarded.client.put(path, json=said, headers=own)
    assert held.status_code == 200, held.text
    assert held.json()["by"] == "ada (token operateer)"
    ended = guarded.client.delete(path, params={"by": "operateer"}, headers=own)
    assert ended.json()["ended_by"] == "operateer"


def test_who_is_turned_away_is_counted_by_reason_and_not_as_refused(guarded: InProcess) -> None:
    guarded.client.get("/api/v1/query", headers=bearer("token-of-ingest-only"))
    text = guarded.client.get("/metrics", headers=bearer(TOKEN)).text
    for reason in ("no_token", "unknown_token", "scope"):
        assert f'fabric_service_denied_total{{reason="{reason}"}}' in text
    assert 'rule="scope"' not in text


def test_the_document_says_what_each_path_asks_for(guarded: InProcess) -> None:
    paths = guarded.client.get("/openapi.json", headers=bearer(TOKEN)).json()["paths"]
    assert paths["/v1/ingest"]["post"]["security"] == [{"token": ["ingest"]}]
    assert "security" not in paths["/healthz"]["get"]


# --- tokens over HTTP ---------------------------------------------------------------------------


def test_a_token_is_made_used_listed_and_revoked(guarded: InProcess) -> None:
    client, admin = guarded.client, bearer(TOKEN)
    asked = {"name": "grafana \x1b[2J", "scopes": ["read", "read"], "days": 30}
    answer = client.post("/v1/tokens", json=asked, headers=admin)
    assert answer.status_code == 200, answer.text
    made = answer.json()
    kept, text = made["kept"], made["token"]
    assert (kept["name"], kept["scopes"]) == ("grafana \ufffd[2J", ["read"])
    assert client.get("/v1/hosts", headers=bearer(text)).status_code == 200
    assert client.post("/v1/silences", json={}, headers=bearer(text)).status_code == 403
    listed = client.get("/v1/tokens", headers=admin)
    assert kept["id"] in {item["id"] for item in listed.json()["items"]}
    assert text.rpartition("_")[2] not in listed.text
    assert "digest" not in listed.text
    assert text not in str(guarded.inventory.tokens.all())
    path = f"/v1/tokens/{kept['id']}"
    assert client.delete(path, headers=admin).json()["revoked_at"] is not None
    refused = client.get("/v1/hosts", headers=bearer(text))
    assert (refused.status_code, refused.json()["rule"]) == (401, "token_revoked")
    assert client.delete(path, headers=admin).status_code == 404
    assert client.delete("/v1/tokens/%00", headers=admin).status_code == 404


def test_a_token_over_its_rate_is_told_to_wait(guarded: InProcess) -> None:
    asked = {"name": "slow", "scopes": ["read"], "requests_per_second": 0.001}
    made = guarded.client.post("/v1/tokens", json=asked, headers=bearer(TOKEN)).json()
    answers = [guarded.client.get("/v1/hosts", headers=bearer(made["token"])) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[1].json()["rule"] == "token_rate"
    assert answers[1].headers["retry-after"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"\xff", 400),
        (b"{}", 422),
        (b'{"name":"","scopes":["read"]}', 422),
        (b'{"name":"x","scopes":[]}', 422),
        (b'{"name":"x","scopes":["root"]}', 422),
        (b'{"name":"x","scopes":["read"],"days":0}', 422),
        (b'{"name":"x","scopes":["read"],"days":1e300}', 422),
        (b'{"name":"x","scopes":["read"],"requests_per_second":-1}', 422),
        (b'{"name":"x","scopes":["read"],"scope":"admin"}', 422),
        (b'{"name":"' + b"x" * 101 + b'","scopes":["read"]}', 422),
    ],
)
def test_what_is_no_wish_for_a_token_is_refused(
    guarded: InProcess, body: bytes, status: int
) -> None:
    answer = guarded.client.post("/v1/tokens", content=body, headers=JSON | bearer(TOKEN))
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


# --- tokens in the inventory --------------------------------------------------------------------


def keep(inventory: Inventory, days_ago: float = 0, days: float | None = None) -> Token:
    wish = Wish(name="é 'x'", scopes=[Scope.READ, Scope.INGEST], days=days)
    token = issue(wish, NOW - dt.timedelta(days=days_ago))[0]
    assert inventory.tokens.keep(token)
    return token


def test_tokens_come_back_as_they_were_kept(inventory: Inventory) -> None:
    first, second = keep(inventory, days_ago=2), keep(inventory, days_ago=1, days=10)
    assert inventory.tokens.all() == [first, second]
    revoked = inventory.tokens.revoke(first.id, NOW)
    assert revoked is not None
    assert revoked.revoked_at == NOW
    assert [token.id for token in inventory.tokens.all()] == [second.id, first.id]
    assert inventory.tokens.revoke(first.id, NOW) is None
    assert inventory.tokens.revoke("nobody", NOW) is None
    inventory.tokens.note_used({second.id: NOW, "nobody": NOW})
    inventory.tokens.note_used({second.id: NOW - dt.timedelta(hours=1)})
    assert inventory.tokens.all()[0].used_at == NOW


def test_tokens_have_a_bound_and_old_ones_are_forgotten(inventory: Inventory) -> None:
    ancient = TOKENS_KEPT_DAYS + 10
    revoked, _ = keep(inventory, days_ago=ancient), keep(inventory, days_ago=ancient, days=1)
    inventory.tokens.revoke(revoked.id, NOW - dt.timedelta(days=ancient - 1))
    with patch.object(tokens_tables, "TOKENS_MAX", 2):
        standing = [keep(inventory), keep(inventory)]
        assert not inventory.tokens.keep(issue(Wish(name="x", scopes=[Scope.READ]), NOW)[0])
        assert {token.id for token in inventory.tokens.all()} == {token.id for token in standing}
        inventory.tokens.revoke(standing[0].id, NOW)
        assert inventory.tokens.keep(issue(Wish(name="x", scopes=[Scope.READ]), NOW)[0])
