"""A service whose ClickHouse goes away: it acknowledges no batch and names the reason."""

import time
from contextlib import ExitStack
from pathlib import Path

from collector.contract import wire
from collector.contract.model import Sample, Series
from tests.doubles import clickhouse_http
from tests.stands.service import in_process
from tests.worlds import remote_write as rw

NATIVE = {"Content-Type": wire.CONTENT_TYPE, "Content-Encoding": "zstd"}


def test_a_sender_is_told_to_come_back_while_the_store_is_away(tmp_path: Path) -> None:
    now_ms = int(time.time() * 1000)
    labels = [("__name__", "up"), ("host", "h")]
    written = [rw.TimeSeries(labels, [(1.5, now_ms)])]
    request, request_v2 = (rw.snappy(each(written)) for each in (rw.request_v1, rw.request_v2))
    batch = wire.encode_batch(
        wire.pack_batch(
            [Sample(Series("up"), 2.5, (now_ms + 1) * 1_000_000)],
            agent="a",
            boot="b",
            sequence=0,
            sent_ms=now_ms,
            common={"host": "h"},
        )
    )
    with ExitStack() as server:
        url = server.enter_context(clickhouse_http.server(tmp_path / "clickhouse"))
        with in_process(tmp_path, store_url=url) as service:
            client = service.client
            for _ in range(2):
                write = client.post("/api/v1/write", content=request, headers=rw.V1_HEADERS)
                assert write.status_code == 204
                ingest = client.post("/v1/ingest", content=batch, headers=NATIVE)
                assert ingest.json()["stored"] == 1
            # Both protocols name one series, and the resends have changed nothing.
            [series] = service.samples("up", to=now_ms / 1000 + 60)
            assert series["times_ms"] == [now_ms, now_ms + 1]
            assert series["values"] == [1.5, 2.5]
            assert client.get("/readyz").status_code == 200

            server.close()  # the store is gone

            assert client.get("/healthz").status_code == 200
            away = [
                client.get("/readyz"),
                client.get("/v1/samples", params={"match": "up"}),
                client.post("/v1/ingest", content=batch, headers=NATIVE),
                client.post("/api/v1/write", content=request, headers=rw.V1_HEADERS),
                client.post("/api/v1/write", content=request_v2, headers=rw.V2_HEADERS),
            ]
            assert [answer.status_code for answer in away] == [503] * 5
            assert all(answer.headers["retry-after"] for answer in away)
            assert "the store is not available" in away[-1].text
            assert away[-1].headers["X-Prometheus-Remote-Write-Samples-Written"] == "0"
            metrics = client.get("/metrics").text
            assert "fabric_service_pending_rows 0.0" in metrics
            assert "fabric_service_inflight_bytes 0.0" in metrics
            assert 'fabric_service_commits_total{outcome="failed"}' in metrics
