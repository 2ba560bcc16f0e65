"""The links of notices: signed, for one incident, for a while, and they acknowledge only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

import pytest

from alerts.rulebook.notices import Line, Notice, Status, Why
from api.base.limits import PASS_SECONDS
from api.base.passes import Pass, Passes, is_pass
from api.data.inventory.incidents import moment_of
from api.data.inventory.keys import KEY_BYTES, PASS_KEY
from api.data.inventory.repository import Inventory
from api.http.settings import ServiceSettings
from api.oncall.evaluate import lead, task
from api.oncall.notify.message import page_url, pagerduty_event, plain_text, slack_message
from collector.contract.identity import canonical_labels
from collector.contract.units import NS
from tests.stands.service import InProcess, in_process
from tests.worlds.incidents import Teller, slow_link, straggler

TOKEN = "a-token-of-decent-length"  # noqa: S105 - of a service that lives for a minute
INCIDENT = "20261117-142010-poguv-fuvip"
NOW_S = 1_794_733_200.0


def passes(key: bytes = b"k" * KEY_BYTES, now_s: float = NOW_S) -> Passes:
    return Passes(key, lambda: now_s)


# --- signed -------------------------------------------------------------------------------------


def test_a_pass_says_what_it_is_for_and_only_with_its_key() -> None:
    made = passes().make(INCIDENT)
    assert is_pass(made)
    assert passes().read(made) == Pass(incident=INCIDENT, until_s=int(NOW_S) + PASS_SECONDS)
    assert passes(b"x" * KEY_BYTES).read(made) is None


def test_no_character_of_a_pass_can_be_changed() -> None:
    made = passes().make(INCIDENT)
    for place, sign in enumerate(made):
        other = "1" if sign != "1" else "2"
        changed = f"{made[:place]}{other}{made[place + 1 :]}"
        # The last character of 32 bytes in base64 has bits to spare; they are compared, too.
        assert passes().read(changed) is None, (place, changed)
    for text in ("", "fsp", f"{made}x", made[:-1], made.replace(".", "")):
        assert passes().read(text) is None


def test_a_name_that_no_incident_has_gets_no_pass() -> None:
    for name in ("", "a.b", "a/b", "a b", "ä", "x" * 201):
        assert passes().make(name) == ""


def test_the_key_is_made_once_for_all_processes(inventory: Inventory) -> None:
    first = inventory.keys.get(PASS_KEY, moment_of(int(NOW_S) * NS))
    assert len(first) == KEY_BYTES
    assert inventory.keys.get(PASS_KEY, moment_of(int(NOW_S + 1) * NS)) == first
    assert inventory.keys.get("another", moment_of(int(NOW_S) * NS)) != first


# --- in notices ---------------------------------------------------------------------------------


def notice_of(incident: str, status: Status = Status.FIRING) -> Notice:
    labels = canonical_labels({"alertname": "FabricIncident", "incident": incident})
    line = Line(labels=labels, annotations={}, starts_ns=1)
    return Notice(
        id="n", group="g", receiver="r", group_labels=labels, number=1,
        status=status, why=Why.FIRST, planned_ns=1, lines=(line,),
    )  # fmt: skip


def test_a_notice_links_to_its_incident_in_the_page() -> None:
    notice, url = notice_of(INCIDENT), "https://fabric.example/"
    link = page_url(notice, url, passes())
    assert link.startswith(f"https://fabric.example/#/incident/{INCIDENT}?pass=fsp.")
    assert page_url(notice, url, None) == f"https://fabric.example/#/incident/{INCIDENT}"
    for text in (
        plain_text(notice, url, link),
        str(slack_message(notice, url, link)),
        str(pagerduty_event(notice, "key", url, link)),
    ):
        assert link in text
        assert "Acknowledge" in text


def test_there_is_no_link_where_there_is_nothing_to_acknowledge() -> None:
    over = notice_of(INCIDENT, Status.RESOLVED)
    assert page_url(over, "https://fabric.example", passes()) == ""
    assert page_url(notice_of(""), "https://fabric.example", passes()) == ""
    assert page_url(notice_of(INCIDENT), "", passes()) == ""


# --- at the door --------------------------------------------------------------------------------


class Stand:
    """A service that asks for tokens, with two open incidents."""

    def __init__(self, service: InProcess, passes: Passes, mine: str, other: str) -> None:
        self.service, self.passes, self.mine, self.other = service, passes, mine, other

    def ask(self, path: str, bearer: str) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {bearer}"}
        answer = self.service.client.get(path, headers=headers)
        return answer.status_code, answer.text

    def work(self, incident: str, bearer: str, does: str = "acknowledge") -> tuple[int, str]:
        answer = self.service.client.post(
            f"/v1/incidents/{incident}/work",
            json={"does": does, "by": "ann", "note": "x"},
            headers={"Authorization": f"Bearer {bearer}"},
        )
        return answer.status_code, answer.text


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    (tmp_path / "tokens").write_text(TOKEN)
    (tmp_path / "data").mkdir()
    settings = ServiceSettings(
        data=str(tmp_path / "data"),
        token_file=str(tmp_path / "tokens"),
        rules_pack=False,
        own_numbers=False,
    )
    with (
        patch.object(task, "EVALUATE_SECONDS", 1e6),
        patch.object(lead, "RENEW_SECONDS", 1e6),
        in_process(tmp_path / "data", settings=settings) as service,
    ):
        now_ns = int(time.time()) * NS
        teller = Teller(service.inventory, service.store)
        teller.say(now_ns, slow_link(now_ns - 60 * NS), straggler(now_ns - 60 * NS))
        listed = service.client.get("/v1/incidents", headers={"Authorization": f"Bearer {TOKEN}"})
        mine, other = (each["id"] for each in listed.json()["items"])
        key = service.inventory.keys.get(PASS_KEY, moment_of(time.time_ns()))
        yield Stand(service, Passes(key, time.time), mine, other)


def test_a_link_opens_and_acknowledges_its_own_incident_and_the_record_says_so(
    stand: Stand,
) -> None:
    made = stand.passes.make(stand.mine)
    for path in ("", ".md", "/work"):
        assert stand.ask(f"/v1/incidents/{stand.mine}{path}", made)[0] == 200
    status, text = stand.work(stand.mine, made)
    assert status == 200
    assert "ann (by a notice's link)" in text
    for path in ("/v1/causes", "/v1/freshness"):
        assert stand.ask(path, made)[0] == 200
    told = f'{{"name":"a notice\'s link","allowed":[],"incident":"{stand.mine}"}}'
    assert stand.ask("/v1/whoami", made) == (200, told)


def test_a_link_opens_nothing_else(stand: Stand) -> None:
    made = stand.passes.make(stand.mine)
    for path in (
        f"/v1/incidents/{stand.other}",
        f"/v1/incidents/{stand.other}/work",
        f"/v1/incidents/{stand.mine}/feedback",
        "/v1/incidents",
        "/v1/live",
        "/v1/hosts",
        "/metrics",
        "/v1/tokens",
    ):
        status, text = stand.ask(path, made)
        assert status == 403, path
        assert f"incident {stand.mine} only" in text
    assert stand.work(stand.other, made)[0] == 403
    for does in ("unacknowledge", "assign", "note"):
        status, text = stand.work(stand.mine, made, does)
        assert status == 403
        assert "a notice's link acknowledges only" in text
    assert '"items":[]' in stand.ask(f"/v1/incidents/{stand.mine}/work", TOKEN)[1]


def test_a_link_ends_with_its_time_and_a_forged_one_is_none(stand: Stand) -> None:
    key = stand.service.inventory.keys.get(PASS_KEY, moment_of(time.time_ns()))
    old = Passes(key, lambda: time.time() - PASS_SECONDS - 1).make(stand.mine)
    status, text = stand.ask(f"/v1/incidents/{stand.mine}", old)
    assert (status, "expired at" in text) == (401, True)
    forged = Passes(b"x" * KEY_BYTES, time.time).make(stand.mine)
    status, text = stand.ask(f"/v1/incidents/{stand.mine}", forged)
    assert (status, "no notice's of this service" in text) == (401, True)


def test_a_browser_s_request_from_another_page_is_refused_with_a_link_too(stand: Stand) -> None:
    link = page_url(notice_of(stand.mine), "http://fabric.example", stand.passes)
    made = parse_qs(urlsplit(urlsplit(link).fragment).query)["pass"][0]
    answer = stand.service.client.post(
        f"/v1/incidents/{stand.mine}/work",
        json={"does": "acknowledge", "by": "ann"},
        headers={"Authorization": f"Bearer {made}", "Origin": "http://evil.example"},
    )
    assert answer.status_code == 403
    assert "only pages of this service" in answer.text
