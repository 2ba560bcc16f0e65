"""`/v1/costs` and `fabricscope costs` over a service that has incidents."""

import time
from collections.abc import Iterator
from unittest.mock import patch

import msgspec
import pytest

from api.http.settings import ServiceSettings
from api.oncall.evaluate import lead, task
from collector.cli import main
from collector.contract.errors import SettingsError
from collector.contract.units import NS
from tests.stands.service import InProcess, in_process
from tests.worlds.incidents import Teller, slow_link

LOST_GPU_HOURS = 0.2
PRICE = 3.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """With one incident of a minute, and a price."""
    data = tmp_path_factory.mktemp("service")
    settings = ServiceSettings(data=str(data), price_per_gpu_hour=PRICE, currency="EUR")
    with (
        patch.object(task, "EVALUATE_SECONDS", 1e6),
        patch.object(lead, "RENEW_SECONDS", 1e6),
        in_process(data, settings=settings) as found,
    ):
        now_ns = int(time.time()) * NS
        Teller(found.inventory, found.store).say(now_ns, slow_link(now_ns - 60 * NS))
        yield found


def test_the_account_of_a_week_is_in_gpu_hours_and_money(service: InProcess) -> None:
    told = service.client.get("/v1/costs").json()
    assert (told["incidents"], told["unmeasured"], told["is_partial"]) == (1, 0, False)
    assert told["gpu_hours"] == pytest.approx(LOST_GPU_HOURS)
    assert told["money"] == pytest.approx(PRICE * LOST_GPU_HOURS)
    assert (told["currency"], told["price_per_gpu_hour"]) == ("EUR", PRICE)
    (entry,) = told["entries"]
    assert (entry["cause"], entry["reason"]) == ("slow_link", "nic")
    assert "node3" in entry["culprit"]
    text = service.client.get(f"/v1/incidents/{entry['dearest']}.md").text
    assert "0.20 GPU-hours (0.60 EUR)" in text


@pytest.mark.parametrize("by", ["culprit", "cause", "incident", "job", "week"])
def test_every_way_to_add_up_has_the_same_sum(service: InProcess, by: str) -> None:
    told = service.client.get("/v1/costs", params={"by": by}).json()
    assert sum(one["gpu_hours"] for one in told["entries"]) == pytest.approx(LOST_GPU_HOURS)


def test_another_price_and_another_time_may_be_asked_for(service: InProcess) -> None:
    told = service.client.get("/v1/costs", params={"price": 10}).json()
    assert told["money"] == pytest.approx(10 * LOST_GPU_HOURS)
    past = service.client.get("/v1/costs", params={"from": "1000000000", "to": "1000003600"})
    assert (past.json()["incidents"], past.json()["gpu_hours"]) == (0, 0.0)


def test_a_job_that_does_not_exist_cost_something_unknown(service: InProcess) -> None:
    answer = service.client.get("/v1/costs", params={"job": "trian"})
    assert answer.status_code == 404
    assert "no job is called 'trian'" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("price", "currency"), [(-1.0, "USD"), (float("nan"), "USD"), (2.0, ""), (2.0, "x" * 9)]
)
def test_a_price_that_is_none_is_refused_at_the_start(price: float, currency: str) -> None:
    settings = ServiceSettings(price_per_gpu_hour=price, currency=currency)
    with pytest.raises(SettingsError, match=r"price_per_gpu_hour|currency"):
        settings.check()


@pytest.mark.parametrize(
    "asked", [{"by": "moon"}, {"price": "-1"}, {"price": "nan"}, {"from": "x"}]
)
def test_what_cannot_be_answered_is_refused(service: InProcess, asked: dict[str, str]) -> None:
    assert service.client.get("/v1/costs", params=asked).status_code in {400, 422}


def test_a_terminal_shows_the_same(service: InProcess, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--service", str(service.client.base_url)]
    assert main(["costs", *flags]) == 0
    shown = capsys.readouterr().out
    assert "EUR" in shown
    assert "node3's NIC mlx5_0" in shown
    assert main(["costs", "--by", "week", "--json", *flags]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["by"] == "week"
