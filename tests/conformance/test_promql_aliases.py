"""A question on our names sees what other exporters call the same thing."""

import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest

from api.data.selectors import parse_selector, utc_day
from api.promql import fetch, find
from api.promql.aliases import strands_of
from api.promql.engine import Engine, Question
from api.promql.fetch import GROUP_MS_MAX, Reader
from api.promql.find import SERIES_MAX, SeriesMemory
from api.promql.values import Dialect, Grid, Labels, Vector
from collector.contract.catalog import load_catalog
from tests.stands.service import InProcess, in_process
from tests.worlds.remote_write import V1_HEADERS, TimeSeries, request_v1, snappy

NOW = round(time.time())

Pairs = tuple[tuple[str, str], ...]

NODE: Pairs = (("device", "mlx5_0"), ("instance", "node-7:9100"), ("job", "node"), ("port", "1"))
DCGM: Pairs = (
    ("Hostname", "gpu-3"),
    ("UUID", "GPU-aa"),
    ("gpu", "0"),
    ("instance", "10.0.0.3:9400"),
)
SCRAPED: Pairs = (
    *(("device", "mlx5_1"), ("instance", "node-8:9100")),
    *(("job", "node"), ("port", "1")),
)
OURS: Pairs = (("device", "mlx5_1"), ("host", "node-8"), ("port", "1"))


def counter(name: str, labels: Pairs, rate: float) -> TimeSeries:
    """Ten minutes of a counter, every ten seconds."""
    samples = [(rate * k, (NOW - 600 + k) * 1000) for k in range(0, 601, 10)]
    return TimeSeries((("__name__", name), *labels), samples)


VLLM: Pairs = (("engine", "0"), ("instance", "gpu-5:8000"), ("model_name", "llama"))
SGLANG: Pairs = (("instance", "gpu-6:30000"), ("model_name", "qwen"), ("tp_rank", "0"))

SENT = [
    # As vLLM 0.11 and SGLang 0.5 name them; the latter counts milliseconds.
    counter("vllm:inter_token_latency_seconds_sum", VLLM, 2.0),
    counter("vllm:inter_token_latency_seconds_count", VLLM, 100.0),
    counter("sglang:kv_transfer_latency_ms_sum", SGLANG, 50.0),
    counter("sglang:kv_transfer_latency_ms_count", SGLANG, 2.0),
    counter("fabric_port_transmit_bytes_total", OURS, 100.0),
    counter("node_infiniband_port_data_transmitted_bytes_total", NODE, 200.0),
    # The same port, measured twice: its labels become those of ours.
    counter("node_infiniband_port_data_transmitted_bytes_total", OURS, 999.0),
    # And by a scraped node_exporter, whose labels tell it apart.
    counter("node_infiniband_port_data_transmitted_bytes_total", SCRAPED, 300.0),
    TimeSeries((("__name__", "DCGM_FI_DEV_GPU_UTIL"), *DCGM), [(50.0, NOW * 1000)]),
    # An instance of the GPU, which has its name, and what DCGM writes where it has no number.
    TimeSeries(
        (
            ("GPU_I_ID", "9"),
            ("GPU_I_PROFILE", "1g.10gb"),
            ("Hostname", "gpu-3"),
            ("UUID", "GPU-aa"),
            ("__name__", "DCGM_FI_DEV_GPU_UTIL"),
            ("gpu", "0"),
            ("pod", "rank-3"),
        ),
        [(90.0, NOW * 1000)],
    ),
    TimeSeries((("__name__", "DCGM_FI_DEV_MEMORY_TEMP"), *DCGM), [(2147483634.0, NOW * 1000)]),
    TimeSeries(
        (("__name__", "node_infiniband_rate_bytes_per_second"), *NODE), [(25e9, NOW * 1000)]
    ),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """A service that got series from us, node_exporter and dcgm-exporter."""
    with in_process(tmp_path_factory.mktemp("aliases")) as running:
        write(running, SENT)
        yield running


def write(service: InProcess, series: list[TimeSeries]) -> None:
    body = snappy(request_v1(series))
    answer = service.client.post("/api/v1/write", content=body, headers=V1_HEADERS)
    assert answer.status_code == 204, answer.text


def ask(service: InProcess, query: str, at: int = NOW) -> dict[str, float]:
    """The answer as `label=value,…` → number."""
    answer = service.client.get("/api/v1/query", params={"query": query, "time": str(at)})
    assert answer.status_code == 200, answer.text
    result: list[dict[str, Any]] = answer.json()["data"]["result"]
    return {
        ",".join(f"{name}={value}" for name, value in sorted(one["metric"].items())): float(
            one["value"][1]
        )
        for one in result
    }


NODE_SHOWN = "device=mlx5_0,host=node-7,instance=node-7:9100,job=node,port=1"
OURS_SHOWN = "device=mlx5_1,host=node-8,port=1"
RATE = "rate(fabric_port_transmit_bytes_total"


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (f"{RATE}[1m])", {OURS_SHOWN: 100.0, NODE_SHOWN: 200.0}),
        (f'{RATE}{{host="node-7"}}[1m])', {NODE_SHOWN: 200.0}),
        (f'{RATE}{{host=~"node-[7]"}}[5m])', {NODE_SHOWN: 200.0}),
        (f'{RATE}{{host!="node-7"}}[1m])', {OURS_SHOWN: 100.0}),
        (f'{RATE}{{device="mlx5_0"}}[1m])', {NODE_SHOWN: 200.0}),
        (f'{RATE}{{host="nobody"}}[1m])', {}),
        (
            "sum by (host) (rate(fabric_port_transmit_bytes_total[1m]))",
            {"host=node-7": 200.0, "host=node-8": 100.0},
        ),
        (
            "fabric_gpu_utilization_ratio",
            {
                "Hostname=gpu-3,__name__=fabric_gpu_utilization_ratio,gpu=0,host=gpu-3,"
                "instance=10.0.0.3:9400,uuid=GPU-aa": 0.5
            },
        ),
        (
            'sum(fabric_gpu_utilization_ratio{uuid="GPU-aa",host="gpu-3"})',
            {"": 0.5},
        ),
        ("sum(max_over_time(fabric_port_rate_bits_per_second[5m]))", {"": 200e9}),
        ("sum(count_over_time(fabric_port_rate_bits_per_second[5m]))", {"": 1.0}),
        ("sum(last_over_time(fabric_port_rate_bits_per_second[5m]))", {"": 200e9}),
        # Their own names stay as they are.
        ("sum(node_infiniband_rate_bytes_per_second)", {"": 25e9}),
    ],
)
def test_our_names_see_theirs(service: InProcess, query: str, wanted: dict[str, float]) -> None:
    assert ask(service, query) == pytest.approx(wanted)


@pytest.mark.parametrize("function", ["rate", "increase", "last_over_time", "max_over_time"])
def test_a_thing_that_two_measure_is_there_once(service: InProcess, function: str) -> None:
    """Sums must not double where our agent runs beside another exporter."""
    mine = 'fabric_port_transmit_bytes_total{device="mlx5_1"}'
    named = "__name__=fabric_port_transmit_bytes_total," if function == "last_over_time" else ""
    for window in ("1m", "10m"):
        assert list(ask(service, f"{function}({mine}[{window}])")) == [f"{named}{OURS_SHOWN}"]
    assert ask(service, f"count({mine})") == {"": 1.0}
    assert ask(service, f"count(timestamp({mine}))") == {"": 1.0}


def test_theirs_stands_in_where_ours_is_silent(service: InProcess) -> None:
    whole = counter("fabric_port_receive_bytes_total", OURS, 1.0)
    silent = TimeSeries(whole.labels, whole.samples[:20])
    theirs = counter("node_infiniband_port_data_received_bytes_total", SCRAPED, 7.0)
    write(service, [silent, theirs])
    query = "rate(fabric_port_receive_bytes_total[1m])"
    assert ask(service, query, NOW - 450) == pytest.approx({OURS_SHOWN: 1.0})
    shown = "device=mlx5_1,host=node-8,instance=node-8:9100,job=node,port=1"
    assert ask(service, query) == pytest.approx({shown: 7.0})


def test_a_range_is_scaled_too(service: InProcess) -> None:
    """Over many steps, and few: the two ways to read samples both know the factor."""
    for step in ("10", "300"):
        answer = service.client.get(
            "/api/v1/query_range",
            params={
                "query": "fabric_port_rate_bits_per_second",
                "start": str(NOW - 600),
                "end": str(NOW),
                "step": step,
            },
        ).json()
        (series,) = answer["data"]["result"]
        assert [value for _, value in series["values"]] == ["200000000000"]


def listed(service: InProcess, path: str, match: str) -> list[Any]:
    answer = service.client.get(path, params={"match[]": match})
    assert answer.status_code == 200, answer.text
    data: list[Any] = answer.json()["data"]
    return data


def test_a_dashboards_variables_see_theirs_too(service: InProcess) -> None:
    port, gpu = "fabric_port_transmit_bytes_total", "fabric_gpu_utilization_ratio"
    values = "/api/v1/label/{}/values"
    assert listed(service, values.format("host"), port) == ["node-7", "node-8"]
    assert listed(service, values.format("host"), f'{port}{{host=~"node-7"}}') == ["node-7"]
    assert listed(service, values.format("__name__"), gpu) == [gpu]
    assert listed(service, values.format("uuid"), gpu) == ["GPU-aa"]
    assert listed(service, values.format("UUID"), gpu) == []
    assert listed(service, "/api/v1/labels", gpu) == [
        *("Hostname", "__name__", "gpu", "host", "instance", "uuid"),
    ]
    assert listed(service, "/api/v1/series", port) == [
        {"__name__": port, **dict(NODE), "host": "node-7"},
        {"__name__": port, **dict(SCRAPED), "host": "node-8"},
        {"__name__": port, **dict(OURS)},
    ]


def test_a_gpu_s_instance_is_not_the_gpu(service: InProcess) -> None:
    assert ask(service, 'max(fabric_gpu_utilization_ratio{host="gpu-3"})') == {"": 0.5}
    # By its own name it is still there.
    assert ask(service, 'max(DCGM_FI_DEV_GPU_UTIL{GPU_I_ID="9"})') == {"": 90.0}


def test_what_dcgm_writes_for_no_value_is_no_temperature(service: InProcess) -> None:
    assert ask(service, "fabric_gpu_memory_temperature_celsius") == {}
    shown = service.client.get("/metrics").text
    assert 'fabric_service_blank_samples_total{protocol="remote_write"} 1.0' in shown


def test_aliases_can_be_switched_off(service: InProcess) -> None:
    """Without a catalog, which is what `promql_aliases = false` leaves out."""
    plain = Engine(service.store, Dialect.PROMETHEUS_3, catalog=None)

    def labels(query: str) -> list[Labels]:
        question = Question(text=query, grid=Grid(NOW * 1000, 1, 1), is_range=False)
        value = plain.start(question).answer().value
        assert isinstance(value, Vector)
        return list(value.labels)

    assert labels("fabric_port_rate_bits_per_second") == []
    assert labels(f"{RATE}[1m])") == [dict(OURS)]


@pytest.mark.parametrize(
    ("what", "count", "host", "model", "seconds"),
    [
        ("token_gap_seconds", "token_gaps", "gpu-5", "llama", 0.02),
        ("kv_transfer_seconds", "kv_transfers", "gpu-6", "qwen", 0.025),
    ],
)
def test_latencies_of_inference_engines_are_found_by_our_names(
    service: InProcess, what: str, count: str, host: str, model: str, seconds: float
) -> None:
    by = "sum by (host, model)"
    query = (
        f"{by} (rate(fabric_engine_{what}_total[5m]))"
        f" / {by} (rate(fabric_engine_{count}_total[5m]))"
    )
    assert ask(service, query) == {f"host={host},model={model}": pytest.approx(seconds)}


SELECTORS = [
    'fabric_port_transmit_bytes_total{host="node-7"}',
    'fabric_port_transmit_bytes_total{host="node-8"}',
    'fabric_port_transmit_bytes_total{device=~"mlx5_.",port="1"}',
    'fabric_gpu_utilization_ratio{host="gpu-3"}',
    'fabric_port_rate_bits_per_second{host="nobody"}',
    'node_infiniband_port_data_transmitted_bytes_total{device="mlx5_1"}',
]


@pytest.mark.parametrize("most", [SERIES_MAX, 3])
def test_selectors_that_are_looked_for_at_once_find_what_each_finds(
    service: InProcess, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Also where all together are too many: then each is asked for."""
    monkeypatch.setattr(find, "SERIES_MAX", most)
    chosen = SELECTORS if most > 3 else [SELECTORS[place] for place in (1, 3, 4)]
    strands = [strands_of(parse_selector(one), load_catalog()) for one in chosen]
    day_ms = 86_400_000
    spans = [(NOW * 1000 - 600_000, NOW * 1000), (NOW * 1000 - day_ms, NOW * 1000)]
    sought = [(one, *span) for one in strands for span in spans]
    single, together = (
        Reader(service.store, SeriesMemory(), time.monotonic() + 600) for _ in range(2)
    )
    expected = [single.find(*one) for one in sought]
    with patch.object(service.store, "query", side_effect=service.store.query) as asked:
        together.find_all(sought)
        found = [together.find(*one) for one in sought]
    for mine, theirs in zip(found, expected, strict=True):
        for name in ("labels", "row_of", "factors", "where", "parameters", "shaded", "in_order"):
            assert getattr(mine, name) == getattr(theirs, name), name
    if most > 3:
        assert any(one.shaded for one in found)
        assert looks_in(asked) == len({(utc_day(a), utc_day(b)) for a, b in spans})


def test_a_view_s_questions_by_host_are_looked_for_at_once(service: InProcess) -> None:
    query = " or ".join(f"rate({one}[1m])" for one in SELECTORS[:4])
    engine = Engine(service.store, Dialect.PROMETHEUS_3, load_catalog())
    question = Question(text=query, grid=Grid(NOW * 1000, 1, 1), is_range=False)
    with patch.object(service.store, "query", side_effect=service.store.query) as asked:
        engine.start(question).answer()
    assert looks_in(asked) == 1


@pytest.mark.parametrize("most", [GROUP_MS_MAX, 0])
def test_samples_that_are_read_at_once_are_those_of_each(
    service: InProcess, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Also where all together could be too many: then those of each are read."""
    monkeypatch.setattr(fetch, "GROUP_MS_MAX", most)
    strands = [strands_of(parse_selector(one), load_catalog()) for one in SELECTORS]
    ends = [(NOW * 1000 - ago_ms, NOW * 1000) for ago_ms in (900_000, 1_800_000)]
    sought = [(one, *span) for one in strands for span in ends]
    single, together = (
        Reader(service.store, SeriesMemory(), time.monotonic() + 600) for _ in range(2)
    )
    expected = [single.raw(single.find(*one), *one[1:]) for one in sought]
    assert sum(len(one.values) for one in expected) > 0
    together.find_all(sought)
    with patch.object(service.store, "query", side_effect=service.store.query) as asked:
        found = [together.raw(together.find(*one), *one[1:]) for one in sought]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.labels == theirs.labels
        for name in ("rows", "times_ms", "values", "stale"):
            assert np.array_equal(getattr(mine, name), getattr(theirs, name), equal_nan=True), name
    reads = sum("FROM samples PREWHERE" in call.args[0] for call in asked.call_args_list)
    assert reads == len(ends) if most else reads > len(ends)


@pytest.mark.parametrize("most", [1, 4])
def test_what_selectors_have_in_common_is_said_once(service: InProcess, most: int) -> None:
    """The engine takes longer to read a long statement than to answer it."""
    metrics = ("transmit_bytes", "receive_bytes", "receive_errors", "transmit_discards")[:most]
    sought = [
        (strands_of(parse_selector(f'fabric_port_{one}_total{{host="node-7"}}'), load_catalog()),)
        for one in (*metrics, "symbol_errors")
    ]
    reader = Reader(service.store, SeriesMemory(), time.monotonic() + 600)
    with patch.object(service.store, "query", side_effect=service.store.query) as asked:
        reader.find_all((*one, NOW * 1000 - 600_000, NOW * 1000) for one in sought)
    (text,) = [call.args[0] for call in asked.call_args_list if "AS meets" in call.args[0]]
    assert text.count("labels['instance'], '['") == 2, "once to choose rows, once for all selectors"


def looks_in(asked: Mock) -> int:
    """How many questions were for series: the service itself asks others meanwhile."""
    texts = [call.args[0] for call in asked.call_args_list]
    return sum("AS meets" in text or "AS strand" in text for text in texts)
