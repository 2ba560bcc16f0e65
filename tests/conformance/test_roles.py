"""A service with a role: it does its part, and refuses the others' by name."""

import time
from pathlib import Path

from api.http.duties import OF_ROLE, Role
from api.http.settings import ServiceSettings
from tests.stands.service import in_process
from tests.worlds import remote_write as rw


def write() -> bytes:
    labels = [("__name__", "up"), ("host", "h")]
    return rw.snappy(rw.request_v1([rw.TimeSeries(labels, [(1.5, time.time_ns() // 1_000_000)])]))


def settings_of(role: Role, data: Path) -> ServiceSettings:
    return ServiceSettings(data=str(data), role=role, rules_pack=False, own_numbers=False)


def test_one_takes_telemetry_and_the_other_answers(tmp_path: Path) -> None:
    """One after the other on one folder, as the engine allows; beside ClickHouse both run."""
    settings = settings_of(Role.INGEST, tmp_path)
    with in_process(tmp_path, settings=settings, duties=OF_ROLE[Role.INGEST]) as service:
        taken = service.client.post("/api/v1/write", content=write(), headers=rw.V1_HEADERS)
        assert taken.status_code == 204
        assert service.client.get("/readyz").text == "ready\n"
        refused = service.client.get("/v1/hosts")
        assert refused.status_code == 404
        assert refused.json()["rule"] == "role"
        assert "has the role ingest, it takes telemetry; ask one" in refused.json()["detail"]
        assert "evaluator" not in service.context.supervisor.works
    settings = settings_of(Role.QUERY, tmp_path)
    with in_process(tmp_path, settings=settings, duties=OF_ROLE[Role.QUERY]) as service:
        [series] = service.samples("up")
        assert series["values"] == [1.5]
        refused = service.client.post("/api/v1/write", content=write(), headers=rw.V1_HEADERS)
        assert refused.status_code == 404
        assert "has the role query, it answers questions" in refused.json()["detail"]
        assert not service.context.wellbeing.lead.is_held()
