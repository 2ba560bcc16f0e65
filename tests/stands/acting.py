"""A service whose policy looks often, verdicts against hosts, and a clock that can be moved."""

import contextlib
import datetime as dt
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from api.data.inventory.sightings import Observation, Sighting
from api.fleet.actions import task as actions_task
from api.fleet.health import board
from api.http.settings import ServiceSettings
from api.oncall.evaluate import lead, task
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason, Verdict
from tests.stands.service import InProcess, eventually, in_process
from tests.worlds.incidents import HOLDER, Teller

HOSTS = tuple(f"node{number}" for number in range(10))
POLICY = """
mode = "{mode}"
limits = {{share_max = {share}, cooldown_s = 3600}}
check.bus_bandwidth_min.all_reduce = 50.0
[[rules]]
name = "broken-gpu"
causes = ["straggler/gpu_error"]
stands_s = 10
ttl_s = 3600
"""


def broken_gpu(host: str, now_ns: int) -> Verdict:
    return Verdict(
        cause=Cause.STRAGGLER,
        culprit=Culprit(host=host, gpu=1),
        reason=Reason.GPU_ERROR,
        since_ns=now_ns - NS,
        confidence=0.95,
        summary=f"{host}'s GPU 1 is broken",
    )


class Stage:
    """A service whose policy looks often, and whose clock can be moved on."""

    def __init__(self, service: InProcess, policy: Path, skip: list[float]) -> None:
        self.service = service
        self.client = service.client
        self._teller = Teller(service.inventory, service.store)
        self._policy = policy
        self._skip = skip
        self._verdicts: dict[str, Verdict] = {}

    @property
    def now_ns(self) -> int:
        return round((time.time() + self._skip[0]) * NS)

    def say(self, *hosts: str) -> None:
        """Accuse these hosts, and those before."""
        for host in hosts:
            self._verdicts[host] = broken_gpu(host, self.now_ns)
        self.hear()

    def hear(self) -> None:
        """Every host reports, and every verdict is given again."""
        now = dt.datetime.fromtimestamp(self.now_ns / NS, tz=dt.UTC)
        self.service.inventory.observe(Observation.at(Sighting(host=host), now) for host in HOSTS)
        self._teller.say(self.now_ns, *self._verdicts.values())

    def pass_time(self, seconds: float) -> None:
        """Later: what stood goes on."""
        self._skip[0] += seconds
        self.hear()

    def later(self, condition: Callable[[], bool], what: str) -> None:
        """Let time pass until the condition holds: the policy may not have looked before."""

        def holds() -> bool:
            if condition():
                return True
            self.pass_time(3)
            return False

        eventually(holds, what)

    def set_policy(self, mode: str = "enforce", share: float = 0.2) -> None:
        """Another policy, which is read while the service runs."""
        made = self._policy.with_suffix(".new")
        made.write_text(POLICY.format(mode=mode, share=share))
        made.replace(self._policy)
        eventually(lambda: self.get("/v1/actions/policy")["mode"] == mode, mode)

    def get(self, path: str, status: int = 200, **asked: Any) -> Any:  # noqa: ANN401 - JSON
        answer = self.client.get(path, params=asked)
        assert answer.status_code == status, answer.text
        return answer.json()

    def post(self, path: str, status: int = 200, **body: Any) -> Any:  # noqa: ANN401 - JSON
        answer = self.client.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def standing(self) -> dict[str, Any]:
        answer = self.get("/v1/actions", state="standing")
        assert answer["next"] is None
        return {each["host"]: each for each in answer["actions"]}

    def state_of(self, host: str) -> str:
        items = self.get("/v1/health")["items"]
        return next(str(each["state"]) for each in items if each["host"] == host)

    def refusals(self, host: str) -> list[str]:
        found = self.get("/v1/actions", host=host, state="refused")["actions"]
        return [each["refused"] for each in found]

    def latest(self, host: str) -> Any:  # noqa: ANN401 - JSON
        return self.get("/v1/actions", host=host)["actions"][0]


@contextlib.contextmanager
def acting(tmp_path: Path) -> Iterator[Stage]:
    """Such a service below a folder; its own evaluator sleeps, and it leads."""
    skip = [0.0]
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.format(mode="enforce", share=0.2))
    with contextlib.ExitStack() as stack:
        for place, name, value in (
            (task, "EVALUATE_SECONDS", 1e6),
            (lead, "RENEW_SECONDS", 1e6),
            (lead, "LEASE_SECONDS", 1e6),
            (lead, "name_holder", lambda: HOLDER),
            (board, "LOOK_SECONDS", 0.02),
            (actions_task, "DECIDE_SECONDS", 0.02),
        ):
            stack.enter_context(patch.object(place, name, value))
        settings = ServiceSettings(
            data=str(tmp_path), rules_pack=False, own_numbers=False, policy_file=str(policy)
        )
        service = stack.enter_context(
            in_process(tmp_path, clock=lambda: time.time() + skip[0], settings=settings)
        )
        stage = Stage(service, policy, skip)
        stage.hear()
        eventually(lambda: len(stage.get("/v1/health")["items"]) == len(HOSTS), "the fleet")
        yield stage
