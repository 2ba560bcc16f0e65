"""Data of the first version: today's program opens them, brings them up to date and answers."""

import tarfile
from pathlib import Path

import pytest

from api.data.inventory import migrate
from api.data.inventory.engine import open_engine
from api.data.store.migrate import load_migrations
from collector.cli import main
from tests.stands.service import ServiceProcess
from tests.tools.first_version import HOSTS, KEPT_DAYS, METRIC, SAMPLES, SINCE, STEP_S

DATA = Path(__file__).parents[1] / "fixtures" / "version_0_1" / "data.tar.xz"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with tarfile.open(DATA) as archive:
        archive.extractall(tmp_path / "data", filter="tar")
    return tmp_path / "data"


def test_data_of_the_first_version_are_served(data: Path, tmp_path: Path) -> None:
    config = tmp_path / "service.toml"
    tables = ("samples", "series", "events", "exemplars")
    kept = "\n".join(f"{table} = {KEPT_DAYS}" for table in tables)
    config.write_text(
        f"hosts_kept_days = 0\nrules_pack = false\nown_numbers = false\n[retention_days]\n{kept}\n"
    )
    with ServiceProcess(data, "--config", str(config)) as service:
        end_s = SINCE.timestamp() + (SAMPLES - 1) * STEP_S
        asked = {"query": f"sum by (host) (rate({METRIC}[5m]))", "time": str(end_s)}
        found = service.client.get("/api/v1/query", params=asked).json()["data"]["result"]
        rates = {row["metric"]["host"]: float(row["value"][1]) for row in found}
        assert rates == pytest.approx(dict.fromkeys(HOSTS, 1000 / STEP_S))
        hosts = service.client.get("/v1/hosts").json()["items"]
        assert [host["host"] for host in hosts] == list(HOSTS)
        ports = service.client.get("/v1/ports").json()["items"]
        assert [port["id"] for port in ports] == [f"{host}/mlx5_0/1" for host in HOSTS]
        from_ = {"from": SINCE.isoformat()}
        [event] = service.client.get("/v1/events", params=from_).json()["items"]
        assert event["message"] == "mlx5_0 port 1 went down"
        assert service.client.get("/v1/incidents").json()["items"] == []
        assert service.stop() == 0
    log = service.log.read_text()
    first, *later = [each.name in log for each in load_migrations()]
    assert not first
    assert later
    assert all(later)
    engine = open_engine(f"sqlite:///{data / 'inventory.db'}")
    with engine.connect() as connection:
        assert migrate.current(connection) == migrate.head()
    engine.dispose()


def test_a_newer_inventory_ends_the_start_by_name(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = open_engine(f"sqlite:///{data / 'inventory.db'}")
    migrate.upgrade(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    engine.dispose()
    assert main(["serve", "--data", str(data), "--listen", "127.0.0.1:0"]) == 2
    said = capsys.readouterr().err
    assert "revision 9999, which this program does not know" in said
    assert "run the Fabricscope that made it, or a newer one" in said
