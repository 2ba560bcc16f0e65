"""What `deploy/` ships: units, images, compose files and configurations that fit each other and us.

Docker and ClickHouse are not at hand where tests run, so these rules are ours: what a container
must not be (root, unpinned, with secrets), and that every name, port and file is the same on both
sides. What a real program can check is checked by it.
"""

import configparser
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from api.base.metrics import ServiceMetrics
from api.data.inventory.token_model import Scope
from api.data.store.migrate import CLUSTER_ENGINE, Placement, load_migrations
from api.data.store.store import StoreUrl
from api.http.settings import ServiceSettings, load_service_settings
from api.http.tokens.file import read_token_file
from collector.agent.settings import AgentSettings
from collector.contract.catalog import load_catalog
from dashboards.grafana.connection import Target
from dashboards.grafana.push import PushSettings, wanted_datasource
from tests.stands.ports import free_port
from tests.stands.service import serving

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
HOW_TO = (ROOT / "docs/how-to/deploy.md").read_text("utf-8")

# --- systemd ------------------------------------------------------------------------------------

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PROGRAM = "/opt/fabricscope/bin/fabricscope"
HARDENED = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes",
    "ProtectControlGroups": "yes",
    "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes",
    "DynamicUser": "yes",
    "User": "fabricscope",
    "Restart": "on-failure",
    "Environment": "PYTHONSAFEPATH=1",
}
CAPABILITIES = {
    "fabricscope.service": "",
    "fabricscope-agent.service": "CAP_SYS_PTRACE CAP_DAC_READ_SEARCH CAP_SYSLOG",
    "fabricscope-poller.service": "CAP_DAC_OVERRIDE",
}
EXPOSURE_MAX = 45
"""Of `systemd-analyze security`, in tenths: 50 and more is MEDIUM, 0 a unit that can do nothing."""


class Options(configparser.ConfigParser):
    """A unit's options, whose names are case-sensitive."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def options(unit: Path) -> configparser.SectionProxy:
    text = unit.read_text("utf-8").replace("\\\n", " ")
    parser = Options(strict=False, interpolation=None)
    parser.read_string(text)
    assert parser.sections() == ["Unit", "Service", "Install"]
    return parser["Service"]


def test_there_is_a_unit_for_each_program() -> None:
    assert {unit.name for unit in UNITS} == set(CAPABILITIES)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_our_program_and_grants_it_no_more_than_it_needs(unit: Path) -> None:
    service = options(unit)
    assert {name: service.get(name) for name in HARDENED} == HARDENED
    assert service["CapabilityBoundingSet"] == CAPABILITIES[unit.name]
    assert service.get("AmbientCapabilities", "") == CAPABILITIES[unit.name]
    words = service["ExecStart"].split()
    assert words[:3] == [
        PROGRAM,
        "serve" if unit.name == "fabricscope.service" else "agent",
        "--config",
    ]
    assert service["StateDirectory"].startswith("fabricscope")


def test_the_folders_that_units_make_are_those_that_the_programs_use() -> None:
    made = {unit.name: f"/var/lib/{options(unit)['StateDirectory']}" for unit in UNITS}
    assert made["fabricscope.service"] == ServiceSettings().data
    assert made["fabricscope-agent.service"] == AgentSettings().spool_dir
    poller = options(DEPLOY / "systemd/fabricscope-poller.service")["ExecStart"]
    assert f"--spool {made['fabricscope-poller.service']}" in poller
    assert AgentSettings().listen not in poller, "agent and poller of one machine share no port"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_itself_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    # It looks whether the program is there.
    copy.write_text(unit.read_text("utf-8").replace(PROGRAM, "/bin/true"))
    analyze = shutil.which("systemd-analyze")
    assert analyze is not None
    for words in (
        ["verify", "--man=no", str(copy)],
        ["security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", str(copy)],
    ):
        done = subprocess.run(
            [analyze, *words], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        assert "Unknown" not in done.stderr


# --- docker -------------------------------------------------------------------------------------

IMAGES = [DEPLOY / "docker/Dockerfile.service", DEPLOY / "docker/Dockerfile.agent"]
SECRET = re.compile(r"password|secret|token(?!_file)|api_?key", re.IGNORECASE)


def instructions(file: Path) -> Iterator[tuple[str, str]]:
    """What a Dockerfile says, instruction by instruction."""
    text = re.sub(r"^\s*#.*\n", "", file.read_text("utf-8"), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def is_pinned(image: str) -> bool:
    """Whether an image's tag names a release."""
    tag = image.rpartition(":")[2]
    return ":" in image and bool(re.search(r"\d", tag)) and tag != "latest"


def faults_of(file: Path) -> list[str]:
    """What is wrong with a Dockerfile."""
    said = list(instructions(file))
    names = [name for name, _ in said]
    last = len(names) - 1 - names[::-1].index("FROM")
    final = dict(said[last:])
    faults = [
        f"not pinned: {rest}"
        for name, rest in said
        if name == "FROM" and not is_pinned(rest.split()[0])
    ]
    faults += [
        f"a secret: {rest}" for name, rest in said if name in {"ENV", "ARG"} and SECRET.search(rest)
    ]
    faults += ["ADD: say COPY"] if "ADD" in names else []
    faults += ["one stage: the builder's things stay"] if names.count("FROM") < 2 else []
    user = final.get("USER", "root")
    faults += [] if re.fullmatch(r"[1-9]\d*:[1-9]\d*", user) else [f"runs as {user}"]
    faults += [f"no {name}" for name in ("HEALTHCHECK", "ENTRYPOINT") if name not in final]
    faults += [
        f"{name} is no list"
        for name in ("ENTRYPOINT", "CMD")
        if not final.get(name, "[").startswith("[")
    ]
    for name, rest in said:
        if name == "COPY" and "--from" not in rest and "dist/" not in rest:
            faults += [
                f"{source} is not there"
                for source in rest.split()[:-1]
                if not (ROOT / source).exists()
            ]
        if name == "RUN" and "pip install" in rest and "--no-cache-dir" not in rest:
            faults.append("pip keeps a cache")
    return faults


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_an_image_is_not_root_pinned_and_without_secrets(image: Path) -> None:
    assert faults_of(image) == []
    ignored = image.with_name(f"{image.name}.dockerignore").read_text("utf-8").splitlines()
    sources = {
        source
        for name, rest in instructions(image)
        if name == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    }
    rules = [line for line in ignored if line and not line.startswith("#")]
    assert rules == ["*", *(f"!{source}" for source in sorted(sources, reverse=True))]


def test_the_checker_can_say_no(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text(
        "FROM python:latest\nENV API_KEY=1\nADD x /\nCOPY nothing /\n"
        "RUN pip install x\nUSER root\nENTRYPOINT fabricscope\n"
    )
    assert faults_of(bad) == [
        "not pinned: python:latest",
        "a secret: API_KEY=1",
        "ADD: say COPY",
        "one stage: the builder's things stay",
        "runs as root",
        "no HEALTHCHECK",
        "ENTRYPOINT is no list",
        "nothing is not there",
        "pip keeps a cache",
    ]


def test_the_agents_image_has_nothing_of_the_service() -> None:
    text = (DEPLOY / "docker/Dockerfile.agent").read_text("utf-8")
    assert "ARG EXTRAS=agent\n" in text
    assert "server" not in text.replace("service", "")


def test_images_set_settings_that_exist() -> None:
    for image, prefix, known in (
        ("service", "FABRICSCOPE_", ServiceSettings.__struct_fields__),
        ("agent", "FABRICSCOPE_AGENT_", AgentSettings.__struct_fields__),
    ):
        said = dict(instructions(DEPLOY / f"docker/Dockerfile.{image}"))
        names = re.findall(rf"\b{prefix}([A-Z_]+)=", said["ENV"])
        assert names
        assert {name.lower() for name in names} <= set(known)


async def small_app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401, ARG001 - ASGI
    """Answers /good, and nothing else."""
    if scope["type"] == "http":
        status = 200 if scope["path"] == "/good" else 503
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def test_the_health_check_tells_an_answer_from_none() -> None:
    def check(port: int, path: str) -> int:
        words = [shutil.which("python3") or "", str(DEPLOY / "docker/healthy.py"), str(port), path]
        return subprocess.run(words, check=False, timeout=30).returncode

    with serving(small_app) as url:
        port = int(url.rpartition(":")[2])
        assert check(port, "/good") == 0
        assert check(port, "/bad") == 1
    assert check(free_port(), "/good") == 1


# --- compose ------------------------------------------------------------------------------------

COMPOSE = DEPLOY / "compose"


def read_yaml(file: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(file.read_text("utf-8")))


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What make-secrets.sh makes, in a copy of the folder."""
    copy = tmp_path_factory.mktemp("compose") / "compose"
    shutil.copytree(COMPOSE, copy, ignore=shutil.ignore_patterns("secrets"))
    script = str(copy / "make-secrets.sh")
    subprocess.run(["/bin/sh", script], check=True, timeout=30, capture_output=True)
    again = subprocess.run(["/bin/sh", script], check=False, timeout=30, capture_output=True)
    assert again.returncode == 1
    assert b"nothing was changed" in again.stderr
    return copy / "secrets"


@pytest.mark.parametrize(
    "file",
    [COMPOSE / "compose.yaml", DEPLOY / "clickhouse/compose.yaml"],
    ids=["compose", "clickhouse"],
)
def test_every_file_is_there_every_image_pinned_every_port_this_machines(
    file: Path, secrets: Path
) -> None:
    document = read_yaml(file)
    volumes = set(document["volumes"])
    for name, service in document["services"].items():
        assert is_pinned(service["image"]), (name, service["image"])
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), (name, port)
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            if source not in volumes:
                assert mount.endswith(":ro"), (name, mount)
                # What `make` builds is there after the command in the file's first lines.
                assert source.startswith("../../build/") or (file.parent / source).exists(), mount
        for needed in service.get("secrets", []):
            assert needed in document["secrets"], (name, needed)
        for wanted in service.get("depends_on", []):
            assert wanted in document["services"], (name, wanted)
    for secret in document.get("secrets", {}).values():
        assert (secrets.parent / secret["file"]).is_file(), secret


def test_the_services_settings_load_and_name_who_is_there(secrets: Path) -> None:
    services = read_yaml(COMPOSE / "compose.yaml")["services"]
    environment = dict(services["fabricscope"]["environment"])
    environment["FABRICSCOPE_TOKEN_FILE"] = str(secrets / "tokens")
    image = dict(instructions(DEPLOY / "docker/Dockerfile.service"))["ENV"]
    listen = re.search(r"FABRICSCOPE_LISTEN=(\S+)", image)
    assert listen is not None
    settings = load_service_settings(None, {"listen": listen[1]}, environment)
    assert settings.token_need
    assert services["fabricscope"]["ports"] == [f"127.0.0.1:{settings.address[1]}:9700"]
    assert settings.alertmanagers == "http://alertmanager:9093"
    build = services["fabricscope"]["build"]
    assert (COMPOSE / build["context"] / build["dockerfile"]).is_file()


def test_prometheus_writes_nothing_that_the_service_would_refuse() -> None:
    """It scrapes the service's page, whose own numbers no sender may write."""
    [write] = read_yaml(COMPOSE / "prometheus.yml")["remote_write"]
    [drop] = write["write_relabel_configs"]
    assert (drop["source_labels"], drop["action"]) == (["__name__"], "drop")
    page = generate_latest(ServiceMetrics().registry).decode()
    shown = {re.split(r"[{ ]", line)[0] for line in page.splitlines() if line[:1] != "#"}
    refused = set(filter(load_catalog().is_reserved, shown))
    assert len(refused) > 30
    assert refused == {name for name in shown if re.fullmatch(drop["regex"], name)}


def test_each_program_gets_a_token_with_what_it_needs(secrets: Path) -> None:
    tokens = {token.name: set(token.scopes) for token in read_token_file(secrets / "tokens")}
    assert tokens == {
        "operator": {Scope.ADMIN},
        "prometheus": {Scope.INGEST, Scope.READ},
        "grafana": {Scope.READ},
        "agents": {Scope.INGEST},
    }
    hosts = {token.name: token.hosts for token in read_token_file(secrets / "tokens")}
    assert set(hosts.values()) == {("*",)}
    lines = (secrets / "tokens").read_text().splitlines()
    by_name = {line.split()[-1]: line.split()[0] for line in lines}
    assert len(set(by_name.values())) == 4
    assert (secrets / "prometheus.token").read_text() == by_name["prometheus"]
    assert (secrets / "admin.token").read_text() == by_name["operator"]
    assert (secrets / "agents.token").read_text() == by_name["agents"]
    assert (secrets / "grafana.env").read_text() == f"FABRICSCOPE_TOKEN={by_name['grafana']}\n"
    assert (secrets.stat().st_mode & 0o777) == 0o700
    assert "secrets/" in (COMPOSE / ".gitignore").read_text().split()


def test_grafana_asks_the_service_as_push_would_set_it_up() -> None:
    (source,) = read_yaml(COMPOSE / "grafana/datasource.yaml")["datasources"]
    settings = PushSettings(
        target=Target(url="http://grafana:3000", token="x"),  # noqa: S106 - of no account
        boards={},
        service_url="http://fabricscope:9700",
        service_token="$FABRICSCOPE_TOKEN",  # noqa: S106 - Grafana fills it in
    )
    assert source == wanted_datasource(settings)
    (provider,) = read_yaml(DEPLOY / "grafana/provisioning/dashboards/fabricscope.yaml")[
        "providers"
    ]
    mounts = read_yaml(COMPOSE / "compose.yaml")["services"]["grafana"]["volumes"]
    assert f"../../build/release/dashboards:{provider['options']['path']}:ro" in mounts
    assert "dashboards export --out build/release/dashboards" in (ROOT / "Makefile").read_text()


# --- clickhouse ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> ET.Element:
    return ET.parse(DEPLOY / "clickhouse/cluster.xml").getroot()  # noqa: S314 - our own file


def texts(root: ET.Element, path: str) -> list[str]:
    return [each.text or "" for each in root.findall(path)]


def test_the_cluster_is_the_one_that_the_services_tables_are_made_for(cluster: ET.Element) -> None:
    (url,) = set(re.findall(r"clickhouse://[^\s\"']+", HOW_TO))
    store = StoreUrl.parse(url)
    assert store.cluster is not None
    assert [each.tag for each in cluster.find("remote_servers") or []] == [store.cluster]
    macros = {each.tag for each in cluster.find("macros") or []}
    assert set(re.findall(r"{(\w+)}", CLUSTER_ENGINE)) - {"database", "table"} == macros
    statements = [
        statement
        for migration in load_migrations()
        for statement in migration.statements(Placement(store.cluster), 30)
    ]
    assert statements
    for statement in statements:
        assert f"ON CLUSTER '{store.cluster}'" in statement
        if statement.startswith("CREATE"):
            assert "ReplicatedReplacingMergeTree(" in statement
    environment = read_yaml(DEPLOY / "clickhouse/compose.yaml")["services"]["clickhouse-1"][
        "environment"
    ]
    assert environment["CLICKHOUSE_DB"] == store.database


def test_all_machines_are_replicas_keepers_and_behind_the_proxy(cluster: ET.Element) -> None:
    replicas = texts(cluster, "remote_servers/*/shard/replica/host")
    assert len(cluster.findall("remote_servers/*/shard")) == 1, "the service knows one shard"
    assert len(replicas) == 3, "two of three are a majority"
    assert texts(cluster, "zookeeper/node/host") == replicas
    assert texts(cluster, "keeper_server/raft_configuration/server/hostname") == replicas
    port = cluster.findtext("keeper_server/tcp_port")
    assert set(texts(cluster, "zookeeper/node/port")) == {port}
    services = read_yaml(DEPLOY / "clickhouse/compose.yaml")["services"]
    assert [name for name in services if name.startswith("clickhouse")] == replicas
    numbers = [services[name]["environment"]["CLICKHOUSE_NUMBER"] for name in replicas]
    assert numbers == texts(cluster, "keeper_server/raft_configuration/server/id")
    proxy = (DEPLOY / "clickhouse/haproxy.cfg").read_text("utf-8")
    proxied = re.findall(r"^\s+server (\S+) (\S+):8123", proxy, re.MULTILINE)
    assert proxied == [(name, name) for name in replicas]


def test_what_the_configuration_takes_from_the_environment_is_given(cluster: ET.Element) -> None:
    users = ET.parse(DEPLOY / "clickhouse/users.xml").getroot()  # noqa: S314 - our own file
    asked = {
        each.attrib["from_env"]
        for root in (cluster, users)
        for each in root.iter()
        if "from_env" in each.attrib
    }
    services = read_yaml(DEPLOY / "clickhouse/compose.yaml")["services"]
    for name in ("clickhouse-1", "clickhouse-2", "clickhouse-3"):
        assert asked <= set(services[name]["environment"]), name
    (url,) = set(re.findall(r"clickhouse://[^\s\"']+", HOW_TO))
    assert users.find(f"users/{url.partition('://')[2].partition(':')[0]}") is not None
    assert users.findtext("profiles/fabricscope/insert_quorum") == "auto"


# --- the page about it --------------------------------------------------------------------------


def test_the_page_names_every_file_that_is_shipped() -> None:
    shipped = [
        file.relative_to(ROOT)
        for folder in ("systemd", "docker", "compose", "clickhouse")
        for file in (DEPLOY / folder).rglob("*")
        if file.is_file() and "secrets" not in file.parts and not file.name.endswith("ignore")
    ]
    missing = [str(file) for file in shipped if file.name not in HOW_TO]
    assert missing == []
