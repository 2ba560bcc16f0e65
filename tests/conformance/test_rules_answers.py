"""`/api/v1/rules` and `/api/v1/alerts` beside a Prometheus that has the same files and data."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.http.settings import ServiceSettings
from tests.oracles import promql_oracle
from tests.stands.service import InProcess, eventually, in_process
from tests.worlds import remote_write

pytestmark = pytest.mark.peer("prometheus")

RULES = """
groups:
- name: alerts
  interval: 1s
  rules:
  - alert: Fires
    expr: peer_value > 1
    labels: {severity: critical, who: "{{ $labels.host }}"}
    annotations: {summary: "{{ $labels.host }} has {{ $value | humanize }}", bare: plain}
  - alert: Waits
    expr: peer_value>1
    for: 1h
    keep_firing_for: 90s
  - alert: Quiet
    expr: peer_value > 1e9
    annotations: {summary: nothing}
  - alert: Broken
    expr: peer_value * on () peer_other
  - alert: Scalar
    expr: scalar(peer_other{kind="a"})
  - alert: NoNumber
    expr: peer_value * NaN
    for: 1m30s
- name: series
  interval: 2s
  limit: 100
  rules:
  - record: host:peer:sum
    expr: sum(peer_value)by(host)
    labels: {team: fabric}
  - record: host:peer:max
    expr: max without(host) (peer_value{host=~"node.*",host!="x"} offset 5s)
  - alert: Chained
    expr: host:peer:sum >= 3
"""
EXPRESSIONS = """\
up == 0
sum by(job,host) (rate(x{a="1",b=~"2.*"}[5m])) > 0.5
a / on(host) group_left(job) b > 1e-4
x offset 5m
max_over_time(x[1h:5m]) and on() vector(1) unless y
-x
1e9 * x
histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))
x{}
x > bool 5
topk(5, x)
x @ 1609746000
x{a="q\\"z"}
sum(x) without (a)
count_values("v", x)
x == Inf
rate(x[1m30s])
a and ignoring(x) b
x > 0.00001
x > 123456789
x > 1e21
x > 1e-7
a * on (x) group_right b
avg_over_time(x[1d])
x offset -5m
a+ignoring() b
((x))
a / on() group_left() b
sum by () (x)
max_over_time(x[1h:]) + 1
max_over_time(rate(x[5m])[1h:5m] offset 1m)
x @ start()
x == NaN
x == -Inf
rate(x{a!="b",c!~"d"}[5m] offset 1m)
sum without () (x)
x > -5
label_replace(x, "a", "$1", "b", "(.*)")
{__name__=~"x.*"}
{a="b",c="d"}
a or b and c
(a or b) and c
-(a+b)
2 ^ 3 ^ 2
x > 1.5e3
x offset 1w
x offset 5m @ 1609746000
1 == bool 1
a atan2 b
quantile(0.5, x)
absent(x)
time() - x > 1e6
group by (a) (x)
""".splitlines()
TIMES = frozenset({"evaluationTime", "lastEvaluation", "activeAt", "keepFiringSince"})
WORDS = frozenset({"lastError"})
"""What may differ: when, how long, and how an error is put."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rule files for both."""
    folder = tmp_path_factory.mktemp("rules")
    (folder / "rules.yml").write_text(RULES)
    lines = [
        f"  - {{record: 'r{number}', expr: {json.dumps(each)}}}"
        for number, each in enumerate(EXPRESSIONS)
    ]
    text = "\n".join(["groups:", "- name: expressions", "  interval: 1h", "  rules:", *lines])
    (folder / "expressions.yml").write_text(text + "\n")
    return folder


@pytest.fixture(scope="module")
def both(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx.Client, InProcess]]:
    """Prometheus and our service, with the same rules and data."""
    data = tmp_path_factory.mktemp("both")
    settings = ServiceSettings(
        data=str(data), rules_pack=False, rules_dir=str(folder), promql_dialect="prometheus-2"
    )
    with pytest.MonkeyPatch.context() as patch:
        config = f"rule_files: ['{folder}/*.yml']\n{promql_oracle.PROMETHEUS_CONFIG}"
        patch.setattr(promql_oracle, "PROMETHEUS_CONFIG", config)
        patch.setattr("api.oncall.rules.own.OWN_SECONDS", 1.0)
        with (
            promql_oracle.running_prometheus(data) as theirs,
            in_process(data, settings=settings) as ours,
        ):
            load(theirs, ours.client)
            yield theirs, ours


def load(*clients: httpx.Client) -> None:
    """Two hosts and two others, now and a little before."""
    now_ms = round(time.time() * 1000)
    times = range(now_ms - 60_000, now_ms + 1, 5_000)
    values = {
        (("__name__", "peer_value"), ("host", "node1")): 2.5,
        (("__name__", "peer_value"), ("host", "node2")): 1500.0,
        (("__name__", "peer_other"), ("kind", "a")): 7.0,
        (("__name__", "peer_other"), ("kind", "b")): 8.0,
    }
    series = [
        remote_write.TimeSeries(labels, [(value, at_ms) for at_ms in times])
        for labels, value in values.items()
    ]
    for client in clients:
        promql_oracle.Server(client).load(series)


def ask(client: httpx.Client, path: str, **parameters: Any) -> Any:  # noqa: ANN401 - JSON
    answer = client.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def without(document: Any, names: frozenset[str]) -> Any:  # noqa: ANN401 - JSON
    """The document without some fields, and with alerts in order."""
    if isinstance(document, dict):
        return {
            name: without(value, names) for name, value in document.items() if name not in names
        }
    if isinstance(document, list):
        return sorted((without(each, names) for each in document), key=order_of)
    return document


def order_of(document: Any) -> str:  # noqa: ANN401 - JSON
    """Prometheus has alerts in no order."""
    return str(document.get("labels", document.get("name"))) + str(document.get("name"))


def shape_of(document: Any) -> Any:  # noqa: ANN401 - JSON
    """The names and types in a document."""
    if isinstance(document, dict):
        return {name: shape_of(value) for name, value in document.items()}
    if isinstance(document, list):
        return [shape_of(each) for each in without(document, frozenset())]
    return "number" if isinstance(document, int | float) else type(document).__name__


def settled(get: Callable[[], Any]) -> Callable[[], bool]:
    """Whether all rules with a short interval were evaluated, and what was recorded is seen."""

    def look() -> bool:
        rules = [rule for group in get()["groups"] for rule in group["rules"]]
        states = {rule["name"]: rule for rule in rules}
        return bool(
            states["Chained"].get("state") == "firing"
            and states["Fires"].get("state") == "firing"
            and states["Broken"]["health"] == "err"
        )

    return look


def test_rules_and_alerts_are_answered_as_prometheus_does(
    both: tuple[httpx.Client, InProcess],
) -> None:
    theirs, ours = both
    for client in (theirs, ours.client):
        eventually(settled(lambda: ask(client, "/api/v1/rules")), "all rules are evaluated")  # noqa: B023
    wanted = ask(theirs, "/api/v1/rules")
    got = ask(ours.client, "/api/v1/rules")
    short = [g for g in wanted["groups"] if g["name"] != "expressions"]
    mine = [g for g in got["groups"] if g["name"] != "expressions"]
    assert without(mine, TIMES | WORDS) == without(short, TIMES | WORDS)
    assert shape_of(mine) == shape_of(short)
    assert [group["name"] for group in got["groups"]] == [g["name"] for g in wanted["groups"]]
    orders = [[rule["name"] for rule in group["rules"]] for group in got["groups"]]
    assert orders == [[rule["name"] for rule in group["rules"]] for group in wanted["groups"]]
    alerts = [ask(client, "/api/v1/alerts") for client in (theirs, ours.client)]
    assert without(alerts[1], TIMES) == without(alerts[0], TIMES)
    assert len(alerts[1]["alerts"]) == 8


def test_expressions_are_written_back_as_prometheus_does(
    both: tuple[httpx.Client, InProcess],
) -> None:
    theirs, ours = both
    queries = []
    for client in (theirs, ours.client):
        groups = {group["name"]: group for group in ask(client, "/api/v1/rules")["groups"]}
        queries.append([rule["query"] for rule in groups["expressions"]["rules"]])
    assert queries[1] == queries[0]


@pytest.mark.parametrize("kind", ["alert", "record"])
def test_one_kind_of_rules_is_chosen_as_prometheus_does(
    both: tuple[httpx.Client, InProcess], kind: str
) -> None:
    theirs, ours = both
    names = []
    for client in (theirs, ours.client):
        groups = ask(client, "/api/v1/rules", type=kind)["groups"]
        # Later ones than 2.42 leave out groups of which nothing remains.
        names.append([[rule["name"] for rule in one["rules"]] for one in groups if one["rules"]])
    assert names[1] == names[0]
    refused = [client.get("/api/v1/rules?type=x") for client in (theirs, ours.client)]
    assert [each.status_code for each in refused] == [400, 400]
    assert refused[1].json()["error"] == refused[0].json()["error"]


def test_the_series_of_alerts_can_be_asked_for(both: tuple[httpx.Client, InProcess]) -> None:
    _, ours = both
    query = 'ALERTS{alertname="Waits",alertstate="pending"} * on (host) group_left () peer_value'

    def values() -> list[str]:
        found = ask(ours.client, "/api/v1/query", query=query)["result"]
        return sorted(each["value"][1] for each in found)

    eventually(lambda: values() == ["1500", "2.5"], "ALERTS of both hosts")
    since = ask(ours.client, "/api/v1/query", query='ALERTS_FOR_STATE{alertname="Waits"}')
    active = {
        each["labels"]["host"]: each["activeAt"]
        for each in ask(ours.client, "/api/v1/alerts")["alerts"]
        if each["labels"]["alertname"] == "Waits"
    }
    assert len(since["result"]) == len(active) == 2
    for each in since["result"]:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(float(each["value"][1])))
        assert active[each["metric"]["host"]].startswith(moment)


def test_pages_of_groups_follow_each_other(both: tuple[httpx.Client, InProcess]) -> None:
    _, ours = both
    names: list[str] = []
    page = ask(ours.client, "/api/v1/rules", group_limit=1)
    while token := page.get("groupNextToken"):
        names += [group["name"] for group in page["groups"]]
        page = ask(ours.client, "/api/v1/rules", group_limit=1, group_next_token=token)
    names += [group["name"] for group in page["groups"]]
    assert names == ["expressions", "alerts", "series"]
    for bad in ("group_next_token=x", "group_limit=1&group_next_token=x", "group_limit=-1"):
        assert ours.client.get(f"/api/v1/rules?{bad}").status_code == 400


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({"rule_name[]": ["Fires", "host:peer:sum"]}, ["Fires", "host:peer:sum"]),
        ({"rule_group[]": "series", "type": "alert"}, ["Chained"]),
        ({"file[]": "nowhere"}, []),
        ({"match[]": '{severity=~"crit.*"}'}, ["Fires"]),
        ({"match[]": ['{team="fabric"}', '{severity="critical"}']}, ["Fires", "host:peer:sum"]),
    ],
)
def test_rules_are_chosen_by_name_group_file_and_labels(
    both: tuple[httpx.Client, InProcess], parameters: dict[str, Any], names: list[str]
) -> None:
    groups = ask(both[1].client, "/api/v1/rules", **parameters)["groups"]
    assert [rule["name"] for group in groups for rule in group["rules"]] == names


def test_rules_can_be_asked_for_without_their_alerts(both: tuple[httpx.Client, InProcess]) -> None:
    groups = ask(both[1].client, "/api/v1/rules", exclude_alerts="true", type="alert")["groups"]
    assert all(rule["alerts"] == [] for group in groups for rule in group["rules"])
    assert both[1].client.get("/api/v1/rules?exclude_alerts=maybe").status_code == 400


def test_rule_files_say_what_came_of_them(
    both: tuple[httpx.Client, InProcess], folder: Path
) -> None:
    answer = both[1].client.get("/v1/rules/files").json()
    shown = [(each["name"], each["state"], each["groups"]) for each in answer["items"]]
    assert shown == [
        (str(folder / "expressions.yml"), "loaded", 1),
        (str(folder / "rules.yml"), "loaded", 2),
    ]


def test_the_service_writes_its_own_numbers_to_its_store(
    both: tuple[httpx.Client, InProcess],
) -> None:
    query = "sum by (instance) (rate(fabric_service_rule_evaluations_total[1m])) > 0"

    def is_there() -> bool:
        return bool(ask(both[1].client, "/api/v1/query", query=query)["result"])

    eventually(is_there, "a rate of the service's own counter")
