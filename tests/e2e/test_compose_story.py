"""One incident through `deploy/compose`: agent, service, Alertmanager, webhook; and Prometheus.

Docker is not at hand where tests run, so each of its services is a plain process with the files,
the words and the environment that compose.yaml gives it; what is another machine's there (names,
mounts, secrets) is this machine's here. Grafana is left out (there is none), and the inventory is
in PostgreSQL, as where the service has several processes.
"""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.stands import postgres
from tests.stands.alerting import Listener
from tests.stands.gpu_host import FALLEN_OFF, GpuHost
from tests.stands.ports import free_port
from tests.stands.service import READY_SECONDS, ROOT, ServiceProcess, eventually
from tests.tools import peers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer("prometheus", "prometheus-alertmanager", "initdb", "postgres"),
]

COMPOSE = ROOT / "deploy/compose"
PORTS = {"fabricscope": 9700, "prometheus": 9090, "alertmanager": 9093}
"""Of each service inside its container; `grafana` is not started."""
HOST = "gpu-17"
RECEIVER = re.compile(r"# (?:slack|pagerduty)_configs.*")
"""Where alertmanager.yml says that people put theirs in."""


@dataclass
class Story:
    """What happened when, for the documentation: `pytest -s` prints it."""

    began: float = field(default_factory=time.monotonic)

    def tell(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {what}")  # noqa: T201 - a transcript


class Compose:
    """compose.yaml as processes: the same files, at free ports of this machine."""

    def __init__(self, folder: Path, hook: str) -> None:
        copy = folder / "deploy"
        skipped = shutil.ignore_patterns("secrets")
        shutil.copytree(COMPOSE.parent, copy, ignore=skipped)
        here = copy / "compose"
        script = ["/bin/sh", str(here / "make-secrets.sh")]
        subprocess.run(script, check=True, timeout=30, capture_output=True)
        self.folder = folder
        document = yaml.safe_load((here / "compose.yaml").read_text("utf-8"))
        self.services: dict[str, dict[str, Any]] = document["services"]
        self.address = {name: f"127.0.0.1:{free_port()}" for name in PORTS}
        self._places = {
            f"/run/secrets/{name}": str(here / secret["file"])
            for name, secret in document["secrets"].items()
        }
        # Its two receivers, as the people of a site fill them in.
        config = copy / "alertmanager/alertmanager.yml"
        mine = f"webhook_configs: [{{url: '{hook}', send_resolved: true}}]"
        text, filled = RECEIVER.subn(mine, config.read_text("utf-8"))
        assert filled == 2
        config.write_text(text, "utf-8")
        for name in PORTS:
            for mount in self.services[name]["volumes"]:
                source, target = mount.split(":")[:2]
                self._places[target] = str(here / source if "/" in source else folder / source)
        for name in ("prometheus", "alertmanager"):
            for place in filter(Path.is_file, map(Path, self._mounted(name))):
                place.write_text(self.here(place.read_text("utf-8")), "utf-8")

    def _mounted(self, name: str) -> list[str]:
        return [self._places[one.split(":")[1]] for one in self.services[name]["volumes"]]

    def here(self, text: str) -> str:
        """A text of a container's with this machine's paths and addresses."""
        addresses = {f"{name}:{port}": self.address[name] for name, port in PORTS.items()}
        # Whole ones only: /prometheus is no part of /etc/prometheus/prometheus.yml.
        for before, there in ((r"[\w./-]", self._places), (r"[\w.-]", addresses)):
            for name in sorted(there, key=len, reverse=True):
                text = re.sub(rf"(?<!{before}){re.escape(name)}(?![\w.-])", there[name], text)
        return text

    def environment(self, name: str) -> list[str]:
        """A service's variables, as `env` takes them."""
        return [
            f"{key}={self.here(value)}" for key, value in self.services[name]["environment"].items()
        ]

    def secret(self, name: str) -> str:
        return (self.folder / "deploy/compose/secrets" / name).read_text("utf-8").strip()

    def start(self, name: str, program: str, *more: str) -> subprocess.Popen[bytes]:
        """One of the others, with its own words."""
        found = peers.find(program)
        assert found is not None
        words = [self.here(word) for word in self.services[name]["command"]]
        listen = f"--web.listen-address={self.address[name]}"
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen([str(found), *words, listen, *more], stdout=log, stderr=log)


@dataclass
class Site:
    """All of it."""

    compose: Compose
    service: ServiceProcess
    host: GpuHost
    hook: Listener

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        answer = self.service.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        hook = stack.enter_context(Listener())
        compose = Compose(tmp_path, hook.url)
        url = postgres.new_database(stack.enter_context(postgres.server()))
        variables = [*compose.environment("fabricscope"), f"FABRICSCOPE_INVENTORY={url}"]
        port = int(compose.address["fabricscope"].rpartition(":")[2])
        data = tmp_path / "fabricscope"
        service = ServiceProcess(data, port=port, inside=["env", *variables])
        service.client.headers["Authorization"] = f"Bearer {compose.secret('admin.token')}"
        stack.enter_context(service)
        for started in (
            compose.start("prometheus", "prometheus"),
            compose.start("alertmanager", "prometheus-alertmanager", "--cluster.listen-address="),
        ):
            stack.callback(started.wait, READY_SECONDS)
            stack.callback(started.kill)
        folder = tmp_path / HOST
        folder.mkdir()
        token = tmp_path / "deploy/compose/secrets/agents.token"
        host = GpuHost(folder, HOST, service.url, token)
        agent = host.start()
        stack.callback(agent.wait, READY_SECONDS)
        stack.callback(agent.kill)
        yield Site(compose, service, host, hook)


def pages(hook: Listener) -> list[dict[str, Any]]:
    """The alerts about incidents that the webhook was told of."""
    return [
        alert
        for call in hook.calls
        for alert in call.body["alerts"]
        if alert["labels"]["alertname"] == "FabricIncident"
    ]


def test_an_incident_goes_from_the_kernel_s_log_to_the_webhook(site: Site) -> None:
    story = Story()
    story.tell("PostgreSQL, the service, Prometheus, Alertmanager and an agent run")
    bare = httpx.get(f"{site.service.url}/v1/hosts", timeout=30)
    assert bare.status_code == 401, "beyond loopback as in a container: no answer without a token"
    eventually(lambda: HOST in str(site.get("/v1/hosts")), "the agent's host is known")
    story.tell(f"the agent has reported {HOST}")

    site.host.kernel_says(FALLEN_OFF)
    story.tell(f"the kernel of {HOST} says: {FALLEN_OFF}")
    eventually(lambda: site.get("/v1/incidents")["items"] != [], "an incident")
    [incident] = site.get("/v1/incidents")["items"]
    assert (incident["culprit"]["host"], incident["reason"]) == (HOST, "gpu_error")
    story.tell(f"the service opens incident {incident['id']}: {HOST}, {incident['reason']}")

    eventually(lambda: pages(site.hook) != [], "the webhook is told")
    page = pages(site.hook)[0]
    story.tell(f"Alertmanager tells the webhook: {page['annotations']['summary']}")
    assert page["status"] == "firing"
    assert page["labels"]["incident"] == incident["id"]
    assert page["labels"]["host"] == HOST
    public = site.compose.services["fabricscope"]["environment"]
    # Ports of containers are published as they are; this address is for browsers.
    assert page["generatorURL"].startswith(site.compose.here(public["FABRICSCOPE_EXTERNAL_URL"]))
    assert page["annotations"]["dashboard"].startswith(public["FABRICSCOPE_GRAFANA_URL"])
    [call] = [one for one in site.hook.calls if "FabricIncident" in str(one.body)]
    assert call.body["receiver"] == "page"

    # Prometheus scrapes the service with its token, writes to it, and is refused nothing.
    match = 'up{job="fabricscope"}'
    eventually(lambda: site.service.samples(match) != [], "what Prometheus scraped")
    assert site.service.samples(match)[0]["values"][-1] == 1
    assert site.get("/v1/refused")["refused"] == []
    story.tell("what Prometheus scrapes is in the service too, and nothing was refused")
