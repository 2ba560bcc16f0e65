"""What one sender may bring: past a budget it waits, and known series and other senders do not."""

import time
from pathlib import Path

import httpx
import pytest

from api.base.limits import (
    HOSTS_NEW_AT_ONCE_MAX,
    SERIES_A_DAY_PER_HOST_MAX,
    SERIES_NEW_A_MINUTE_PER_HOST_MAX,
)
from api.data.ingest import budgets
from api.http.settings import ServiceSettings
from tests.stands import senders
from tests.stands.service import InProcess, eventually, in_process
from tests.stands.strangers import metric

AGENT, OTHER, ADMIN = (f"a-token-of-{name}-here" for name in ("node-a", "node-b", "an-admin"))
TOKENS = f"{AGENT} ingest hosts=node-a\n{OTHER} ingest hosts=node-b\n{ADMIN} admin\n"


def settings_of(folder: Path, *, tokens: bool = False, **changes: object) -> ServiceSettings:
    if tokens:
        (folder / "tokens").write_text(TOKENS)
    quiet = {"data": str(folder), "rules_pack": False, "own_numbers": False}
    file = {"token_file": str(folder / "tokens")} if tokens else {}
    return ServiceSettings(**{**quiet, **file, **changes})  # type: ignore[arg-type]


def junk(first: int, count: int, **labels: str) -> list[dict[str, str]]:
    return [
        {"__name__": "junk", "n": str(number), **labels} for number in range(first, first + count)
    ]


def ghosts(first: int, count: int) -> list[dict[str, str]]:
    name = "fabric_host_load1"
    return [{"__name__": name, "host": f"ghost-{n}"} for n in range(first, first + count)]


def count(service: InProcess, sql: str) -> int:
    found: int = service.rows(sql)[0]["n"]
    return found


JUNK_SQL = "SELECT uniqExact(series) AS n FROM series WHERE metric_name = 'junk'"
SAMPLES_SQL = "SELECT count() AS n FROM samples FINAL"


def refused(service: InProcess, protocol: str, rule: str) -> float:
    return metric(service, f'fabric_service_refused_total{{protocol="{protocol}",rule="{rule}"}}')


def check_over(answer: httpx.Response, rule: str) -> None:
    assert answer.status_code == 429, answer.content
    assert rule.encode() in answer.content
    assert 1 <= int(answer.headers["Retry-After"]) <= 60


def test_junk_series_and_ghosts_of_one_agent_are_refused(tmp_path: Path) -> None:
    """The issue's row, at the bounds that are shipped."""
    with in_process(tmp_path, settings=settings_of(tmp_path, tokens=True)) as service:
        service.client.headers["Authorization"] = f"Bearer {ADMIN}"
        bound = SERIES_NEW_A_MINUTE_PER_HOST_MAX
        assert bound <= min(150_000, SERIES_A_DAY_PER_HOST_MAX)
        started = time.monotonic()
        answers = [
            senders.remote(service, junk(number * 50_000, 50_000), AGENT) for number in range(3)
        ]
        # The budget grows while the requests are made, on a busy machine for a minute.
        grown = (time.monotonic() - started) / 60 * bound
        kept = count(service, JUNK_SQL)
        assert bound <= kept <= min(bound + grown + 1, SERIES_A_DAY_PER_HOST_MAX * 1.1)
        over = [answer for answer in answers if answer.status_code != 204]
        assert over, "the last request passes the budget of a day, at the latest"
        for answer in over:
            if answer.status_code == 429:
                check_over(answer, "SERIES_NEW_A_MINUTE_MAX")
            else:
                assert " by SERIES_A_DAY_MAX" in answer.text
        said = senders.remote(service, ghosts(0, 10_000), AGENT)
        assert said.status_code in {400, 429}
        assert senders.remote(service, junk(1, 1, host="node-b"), OTHER).status_code == 204
        own = [{"__name__": "fabric_host_load1", "host": "node-b"}]
        assert senders.remote(service, own, OTHER).status_code == 204
        eventually(lambda: service.inventory.hosts.get("node-b") is not None, "the honest host")
        assert len(service.inventory.hosts.names(10)) == 1, "no ghost came in"


@pytest.mark.parametrize("version", [1, 2])
def test_known_series_are_stored_while_new_ones_wait(tmp_path: Path, version: int) -> None:
    settings = settings_of(tmp_path, tokens=True, sender_budgets=0.001)
    with in_process(tmp_path, settings=settings) as service:
        service.client.headers["Authorization"] = f"Bearer {ADMIN}"
        known = junk(0, 40)
        assert senders.remote(service, known, AGENT, version=version).status_code == 204
        check_over(
            senders.remote(service, junk(0, 100), AGENT, version=version),
            "SERIES_NEW_A_MINUTE_MAX",
        )
        before = count(service, SAMPLES_SQL)
        answer = senders.remote(service, [*junk(0, 40), *junk(500, 50)], AGENT, version=version)
        check_over(answer, "SERIES_NEW_A_MINUTE_MAX")
        assert (stored := count(service, SAMPLES_SQL) - before) >= 40
        # Who asks for the whole request again must not say that all of it was written.
        said = answer.headers.get("X-Prometheus-Remote-Write-Samples-Written")
        assert said == (None if version == 1 else str(stored))
        assert 50 <= count(service, JUNK_SQL) <= 60
        assert senders.remote(service, known, AGENT, version=version).status_code == 204


def test_otlp_waits_as_remote_write_does(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, tokens=True, sender_budgets=0.001)
    with in_process(tmp_path, settings=settings) as service:
        service.client.headers["Authorization"] = f"Bearer {ADMIN}"
        assert senders.otlp(service, junk(0, 40), AGENT).status_code == 200
        check_over(senders.otlp(service, junk(0, 100), AGENT), "SERIES_NEW_A_MINUTE_MAX")
        assert senders.otlp(service, junk(0, 40), AGENT).status_code == 200
        assert refused(service, "otlp", "SERIES_NEW_A_MINUTE_MAX") >= 45


def test_a_native_batch_is_refused_whole_and_counted(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, tokens=True, sender_budgets=0.001)
    with in_process(tmp_path, settings=settings) as service:
        service.client.headers["Authorization"] = f"Bearer {ADMIN}"
        first = senders.native(service, junk(0, 200), AGENT, host="node-a")
        assert first.status_code == 200, "a batch larger than the bucket passes once"
        answer = senders.native(service, junk(0, 201), AGENT, host="node-a")
        check_over(answer, "SERIES_NEW_A_MINUTE_MAX")
        assert answer.json()["rule"] == "SERIES_NEW_A_MINUTE_MAX"
        assert count(service, JUNK_SQL) == 200
        known = senders.native(service, junk(0, 200), AGENT, host="node-a")
        assert known.status_code == 200, "a known table needs no room"
        assert refused(service, "native", "SERIES_NEW_A_MINUTE_MAX") == 1
        assert senders.native(service, junk(0, 10), OTHER, host="node-b").status_code == 200


def test_past_a_day_s_series_new_ones_are_refused_for_good_and_known_ones_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender that tried them again until midnight would send nothing else."""
    monkeypatch.setattr(budgets, "SERIES_A_DAY_PER_HOST_MAX", 100)
    with in_process(tmp_path, settings=settings_of(tmp_path, tokens=True)) as service:
        service.client.headers["Authorization"] = f"Bearer {ADMIN}"
        assert senders.native(service, junk(0, 90), AGENT, host="node-a").json()["stored"] == 90
        answer = senders.native(service, junk(60, 60), AGENT, host="node-a")
        assert answer.json()["refused"] == {"SERIES_A_DAY_MAX": 30}
        assert answer.json()["stored"] == 30
        answer = senders.remote(service, junk(1_000, 50), AGENT)
        assert answer.status_code == 400
        assert " by SERIES_A_DAY_MAX" in answer.text
        answer = senders.otlp(service, junk(2_000, 50), AGENT)
        assert answer.status_code == 200
        assert b" by SERIES_A_DAY_MAX" in answer.content
        # The count is an estimate, so a few more or less are taken.
        assert 90 <= count(service, JUNK_SQL) <= 120
        known = senders.native(service, junk(0, 90), AGENT, host="node-a")
        assert (known.json()["refused"], known.json()["stored"]) == ({}, 90)


@pytest.mark.parametrize("send", [senders.native, senders.remote, senders.otlp])
def test_bytes_are_paid_off_before_the_next_request_is_read(
    tmp_path: Path, send: senders.Send
) -> None:
    settings = settings_of(tmp_path, tokens=True, sender_budgets=1e-6)
    with in_process(tmp_path, settings=settings) as service:
        service.client.headers["Authorization"] = f"Bearer {ADMIN}"
        long = {f"x{n}": f"{n * 7919 % 10007}" for n in range(30)}
        send(service, junk(0, 3, **long), AGENT)
        check_over(send(service, junk(0, 1), AGENT), "BYTES_A_MINUTE_MAX")
        assert b"BYTES" not in send(service, junk(0, 1), OTHER).content


def test_ghosts_without_a_token_are_bounded_and_known_hosts_are_not(tmp_path: Path) -> None:
    with in_process(tmp_path, settings=settings_of(tmp_path)) as service:
        answer = senders.remote(service, ghosts(0, 10_000))
        check_over(answer, "HOSTS_NEW_A_MINUTE_MAX")
        assert senders.remote(service, ghosts(0, 1_000)).status_code == 204

        def known() -> int:
            return len(service.inventory.hosts.names(20_000))

        eventually(lambda: known() >= HOSTS_NEW_AT_ONCE_MAX, "the hosts that came in")
        assert known() < 1.2 * HOSTS_NEW_AT_ONCE_MAX


def test_hosts_of_the_inventory_are_not_new_to_a_service_that_starts(tmp_path: Path) -> None:
    few = settings_of(tmp_path, sender_budgets=0.01)
    with in_process(tmp_path, settings=few) as service:
        assert senders.remote(service, ghosts(0, 50)).status_code == 204
        eventually(lambda: len(service.inventory.hosts.names(100)) == 50, "the hosts")
    with in_process(tmp_path, settings=few) as service:
        assert senders.remote(service, ghosts(0, 100)).status_code == 204, "50 known, 50 new"
        check_over(senders.remote(service, ghosts(200, 50)), "HOSTS_NEW_A_MINUTE_MAX")


def test_a_vmalert_may_keep_its_state_here_where_a_setting_says_so(tmp_path: Path) -> None:
    with in_process(tmp_path, settings=settings_of(tmp_path, accept_alerts=True)) as service:
        sent = [{"__name__": name} for name in ("ALERTS", "ALERTS_FOR_STATE")]
        assert senders.remote(service, sent).status_code == 204
        assert len(service.samples("ALERTS")) == 1
        answer = senders.remote(service, [{"__name__": "fabric_incident"}])
        assert answer.status_code == 400
        assert "reserved_name" in answer.text
