"""What CONTRIBUTING's recipes make a contributor write, one small example of each kind.

`tests/conformance/test_recipes.py` writes them into a copy of this tree and runs the checks that
find them. Examples are the least that passes: they say how much work a new thing is, not how good
a thing has to be.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import alerts.detectors
import alerts.rulebook.knobs
import api.http.app
import api.http.routes
import api.http.tokens.scopes
import api.oncall.notify.receivers
import api.remote
import collector.contract.causes
import collector.sources
import dashboards.grafana.boards
import simulator.faults

ROOT = Path(__file__).resolve().parents[2]


class Recipe(NamedTuple):
    """One kind of new thing.

    ``files`` are written; in those of ``edits`` what a pattern finds is replaced, or a text is
    added at the end where the pattern is empty. The case folders of a source count as one file.
    Checks are tests, by pytest's names: those of ``each`` are asked of everything there is, and
    must have been asked of ``name``; those of ``once`` look at all together.
    """

    name: str
    each: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    files: Mapping[str, str] = {}
    edits: Mapping[str, tuple[str, str]] = {}

    @property
    def written(self) -> set[str]:
        """What a contributor touches."""
        return {
            "/".join(path.split("/")[:4]) if path.startswith("tests/fixtures/sources/") else path
            for path in (*self.files, *self.edits)
        }


def where(module: ModuleType, name: str = "") -> str:
    """A module's file, or a file of a package, from the root."""
    assert module.__file__ is not None
    file = Path(module.__file__).relative_to(ROOT)
    return (file.parent / name if name else file).as_posix()


# --- agent ------------------------------------------------------------------------------------

SOURCE = '''"""How much randomness the kernel has, from `/proc/sys/kernel/random`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from collector.contract.errors import HostError
from collector.contract.model import Missing, Reading, Sample, Series
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.sources import SourceSettings

PATH = "proc/sys/kernel/random/entropy_avail"


class EntropySource:
    """The source; it keeps nothing."""

    name: ClassVar[str] = "entropy"
    Settings: ClassVar[type[SourceSettings]] = SourceSettings

    def __init__(self, settings: SourceSettings) -> None:
        self._series = Series("fabric_host_entropy_bytes")

    def read(self, host: Host) -> Iterator[Reading]:
        """The kernel's own number."""
        if not host.exists(PATH):
            return
        try:
            yield Sample(self._series, float(host.read(PATH)), host.now_ns())
        except HostError as error:
            yield Missing(self._series, error.reason, error.detail)
        except ValueError as error:
            yield Missing(self._series, UnreadReason.UNPARSEABLE, str(error))


SOURCE = EntropySource
'''

METRIC = """
[[metrics]]
name = "fabric_host_entropy_bytes"
kind = "gauge"
unit = "bytes"
help = "Randomness that the kernel's pool holds."
since = "0.1.0"
"""

CASES = {
    f"tests/fixtures/sources/entropy/{name}": text
    for name, text in {
        "whole/ORIGIN": "Models: Linux 6.8.\nProof: hand\n",
        "whole/tree/proc/sys/kernel/random/entropy_avail": "256\n",
        "broken/ORIGIN": "Models: a kernel whose file holds no number.\nProof: hand\n",
        "broken/tree/proc/sys/kernel/random/entropy_avail": "many\n",
    }.items()
}

# --- alerts -----------------------------------------------------------------------------------

CAUSE = """    FAN_FAILED = CauseFacts(
        name="fan_failed",
        meaning="A fan of a host stands still, and its GPUs slow down.",
        layer=Layer.COMPUTE,
        family=Family.RANK,
        looks_for=Sought("fans that stand still", (TIMES,)),
        blame=Blame(host=0.9, half_life_s=DAYS),
        does=("has a fan that stands still", "have fans that stand still"),
        unnamed="A fan stands still; of which host is not known",
        action="Replace the fan of {host}.",
        runbook="late-rank",
        colour="fan",
    )
"""

DETECTOR = '''"""Fans that stand still.

*Phenomenon.* A fan of a host stands still, and its GPUs slow down.

*Signal.* An event `fan_failed` of the host.

*Assumptions.* The board's controller tells of its fans.

*Misses.* A fan that turns too slowly.

*Reference.* IPMI 2.0, sensor type 04h.
"""

from __future__ import annotations

from alerts.finding import Finding
from alerts.window.model import Window
from collector.contract.verdict import Cause, Culprit

NAME = "fan_failed"
STRENGTH = 0.9
"""A controller's own word."""


def detect(window: Window) -> list[Finding]:
    """One finding for each host."""
    last = {each.labels.get("host", ""): each for each in window.events if each.kind == NAME}
    return [
        Finding(
            detector=NAME,
            cause=Cause.FAN_FAILED,
            culprit=Culprit(host=host),
            strength=STRENGTH,
            since_ns=event.time_ns,
            until_ns=window.until(event.time_ns),
            last_ns=event.time_ns,
        )
        for host, event in sorted(last.items())
    ]
'''

DETECTOR_TEST = '''"""Fans that stand still are found."""

from alerts.detectors.fan_failed import detect
from collector.contract.model import Event
from collector.contract.verdict import Cause
from tests.worlds.machines import GRID, machines


def test_a_fan_that_stands_still_is_its_host_s() -> None:
    event = Event(kind="fan_failed", time_ns=GRID.start_ns, labels={"host": "node1"})
    (finding,) = detect(machines(events=(event,)))
    assert (finding.cause, finding.culprit.host) == (Cause.FAN_FAILED, "node1")
    assert detect(machines()) == []
'''

FAULT = '''"""A fan that stands still: the GPUs of its host get hot."""

from __future__ import annotations

from collector.contract.verdict import Cause, Reason
from simulator.faults.model import FOREVER, Place
from simulator.faults.places import HostFault
from simulator.topology.world import World

STEAL_MOST = 0.5
"""Of a host's time that its firmware takes at strength 1."""


class FanFailed(HostFault):
    """A fan stands still."""

    name = "fan_failed"
    title = "A fan stands still, and the firmware of its host slows the processors down."
    causes = (Cause.@CAUSE@,)
    reason = Reason.HOST_STALL

    def apply(self, world: World, place: Place, strength: float, elapsed_s: float) -> float:
        """The processors are taken away for a part of the time."""
        world.host_steal_share[place.host] = STEAL_MOST * strength
        return FOREVER


FAULT = FanFailed()
'''

RULE = """
      - alert: FabricRankVeryLate
        expr: rank:fabric_rank_lateness:ratio5m > 2 * ${stragglers_lateness}
        for: ${stragglers_for}
        labels: {severity: warning, owner: compute, scope: rank, theme: stragglers}
        annotations:
          summary: Rank {{ $labels.rank }} of job {{ $labels.job }} is very late.
          description: Twice as late as FabricRankLate asks for.
          threshold_source: A policy of ours, no public source.
          runbook_url: ${runbook_base}/late-rank
"""
RULE_KINDS = {
    "fires": ("0.9+0x59", "20m", "['0.9']"),
    "not just below": ("0.3+0x59", "20m", ""),
    "resolves": ("0.9+0x19 0+0x39", "29m", ""),
    "counter reset": ("0.9+0x19 0+0x2 0.1+0x36", "29m", ""),
    "missing scrapes": ("_x59", "20m", ""),
}
EXPECTED = """
          - exp_labels:
              {job: j, rank: "1", host: n, owner: compute, scope: rank, severity: warning,
               theme: stragglers}
            exp_annotations:
              summary: Rank 1 of job j is very late.
              description: Twice as late as FabricRankLate asks for.
              threshold_source: A policy of ours, no public source.
              runbook_url: http://127.0.0.1:9700/runbooks/late-rank"""
RULE_TESTS = "".join(
    f"""
  - name: 'FabricRankVeryLate: {kind}'
    interval: 30s
    input_series:
      - series: 'fabric_job_step_seconds{{job="j"}}'
        values: 2+0x59
      - series: 'fabric_rank_lateness_seconds{{job="j", rank="1", host="n"}}'
        values: {values}
    alert_rule_test:
      - eval_time: {moment}
        alertname: FabricRankVeryLate
        exp_alerts: {EXPECTED if fires else "[]"}
"""
    for kind, (values, moment, fires) in RULE_KINDS.items()
)

# --- dashboards and notification receivers ---------------------------------------------------

BOARD = '''"""How much randomness hosts have."""

from __future__ import annotations

from dashboards.grafana.expressions import HERE
from dashboards.grafana.shapes import board, number
from dashboards.grafana.variables import CLUSTER

BOARD = board(
    title="Fabricscope: randomness",
    question="Does any host lack randomness?",
    tags=("fabricscope",),
    variables=(CLUSTER,),
    rows={
        "All hosts": {
            "Hosts": number("Hosts that tell.", f"count(fabric_host_entropy_bytes{{{HERE}}})"),
        },
    },
)
'''

RECEIVER = '''"""A chat that takes one line of text."""

from __future__ import annotations

from alerts.rulebook.notices import Notice
from api.oncall.notify.message import say
from api.oncall.notify.posting import PostingReceiver


class LineReceiver(PostingReceiver):
    """Posts the title of a notice."""

    name = "line"

    def body(self, notice: Notice, key: str) -> object:
        """One line."""
        del key
        return {"text": say(notice, self._means.external_url).title}


RECEIVER = LineReceiver
'''

RECEIVER_TEST = '''"""The chat's receiver can be set."""

from pathlib import Path

from api.oncall.notify.settings import read_notify_file


def test_a_line_receiver_is_read_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "notify.toml"
    file.write_text('[[receivers]]\\nname = "chat"\\ntype = "line"\\nurl = "https://chat.example/x"\\n')
    (receiver,) = read_notify_file(str(file)).receivers
    assert receiver.type == "line"
'''

# --- programs ---------------------------------------------------------------------------------

VERB = '''"""`fabricscope hello`."""

from __future__ import annotations

import argparse
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Whom to greet."""
    parser.add_argument("name")


def run(arguments: argparse.Namespace) -> int:
    """Greet."""
    sys.stdout.write(f"hello {arguments.name}\\n")
    return 0
'''

EXECUTOR = '''"""`fabricscope batch`: a scheduler that is a file with the names of held hosts."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from api.remote.answers import Report, Service
from api.remote.client import AsyncClient, Target
from api.remote.executor import Attempt, Doubt, Executor, Loop, Plan, Said, until_told
from collector.contract.client_flags import add_client_flags


class BatchExecutor(Executor[set[str], str]):
    """Holds hosts by their line in a file."""

    name = "batch"

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    async def observe(self) -> set[str]:
        """The lines."""
        return set(self._file.read_text("utf-8").split())

    async def plan(self, nodes: set[str], said: Said) -> Plan[str]:
        """Hosts that are not in it yet."""
        if said.actions is None:
            raise Doubt("the service's answer is too old")
        return Plan(changes=sorted({each.host for each in said.actions.actions} - nodes))

    async def apply(self, changes: Sequence[str]) -> AsyncGenerator[Attempt]:
        """Add them."""
        for host in changes:
            self._file.write_text(f"{self._file.read_text('utf-8')}{host}\\n", "utf-8")
            yield Attempt(is_done=True, reports=[Report(host, "done", f"{host}: held")])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file and the service."""
    parser.add_argument("file", type=Path)
    add_client_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Follow the service."""
    asyncio.run(follow(arguments.file, Target.of(arguments, "operate")))
    return 0


async def follow(file: Path, target: Target) -> None:
    """Until a signal comes."""
    service = Service(AsyncClient(target, "batch"))
    loop = Loop(BatchExecutor(file), service, is_dry=False, say=lambda _: None)
    await until_told(loop.run(15.0))
    await service.close()
'''

EXECUTOR_TEST = '''"""The batch executor adds lines."""

import asyncio
from pathlib import Path

from api.remote.batch import BatchExecutor


def test_a_change_is_a_line(tmp_path: Path) -> None:
    file = tmp_path / "held"
    file.write_text("n1\\n")

    async def main() -> set[str]:
        executor = BatchExecutor(file)
        assert [each.is_done async for each in executor.apply(["n2"])] == [True]
        return await executor.observe()

    assert asyncio.run(main()) == {"n1", "n2"}
'''

ROUTE = '''"""`GET /v1/hello`: a greeting."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter(tags=["hello"])


@router.get("/v1/hello")
def read_hello() -> dict[str, str]:
    """Greet."""
    return {"hello": "world"}
'''


def verb(name: str, module: str) -> str:
    """An entry of `verbs.toml`."""
    return f'\n[{name}]\nmodule = "{module}"\nhelp = "an example"\n'


SOURCES = "tests/conformance/test_sources.py"
CLI = "tests/unit/collector/test_cli.py::test_every_registered_verb_is_one_and_names_itself_once"
FAULTS = "tests/unit/simulator/test_simulator_faults.py"
TEMPLATE = f"{Path(where(alerts.rulebook.knobs)).parents[1]}/rules/templates/stragglers.yaml"

RECIPES = {
    "source": Recipe(
        "entropy",
        each=(
            f"{SOURCES}::test_every_source_has_a_case",
            f"{SOURCES}::test_every_source_has_a_case_with_something_missing",
            f"{SOURCES}::test_the_reading_is_exactly_what_is_expected",
            f"{SOURCES}::test_every_metric_and_label_is_in_the_catalog",
            f"{SOURCES}::test_a_machine_without_such_hardware_gives_nothing",
            f"{SOURCES}::test_nothing_but_the_host_touches_the_machine",
        ),
        files={where(collector.sources, "entropy.py"): SOURCE, **CASES},
    ),
    "metric": Recipe(
        "fabric_host_entropy_bytes",
        once=(
            "tests/unit/contract/test_catalog.py::test_the_catalog_that_ships_keeps_the_rules",
            f"{SOURCES}::test_every_metric_of_these_sources_is_in_a_golden_file",
        ),
        edits={"collector/contract/catalog/host.toml": ("", METRIC)},
    ),
    "detector with a new cause": Recipe(
        "fan_failed",
        each=(
            "tests/conformance/test_causes.py::test_every_cause_has_words_data_a_runbook_and_a_colour",
            "tests/unit/test_docs.py::test_every_detector_says_what_it_sees_and_what_it_misses",
        ),
        once=(
            "tests/conformance/test_causes.py::test_every_cause_is_reported_by_a_detector_or_by_the_judge",
            "tests/conformance/test_causes.py::test_no_two_causes_share_a_colour_or_a_depth",
            "tests/conformance/test_causes.py::test_every_detector_says_which_data_it_needs",
            "tests/conformance/test_causes.py::test_no_other_module_lists_causes",
            "tests/unit/alerts/test_fan_failed.py",
            f"{FAULTS}::test_every_cause_but_the_unnamed_stall_has_a_fault",
        ),
        files={
            where(alerts.detectors, "fan_failed.py"): DETECTOR,
            "tests/unit/alerts/test_fan_failed.py": DETECTOR_TEST,
            where(simulator.faults, "fan_failed.py"): FAULT.replace("@CAUSE@", "FAN_FAILED"),
        },
        edits={
            where(collector.contract.causes): (r"^    STRAGGLER = ", CAUSE + r"\g<0>"),
            "dashboards/web/src/style/page.css": (r"^ +--s8: .*\n", r"\g<0>  --fan: #777777;\n"),
        },
    ),
    "rule": Recipe(
        "FabricRankVeryLate",
        each=(
            "tests/unit/alerts/test_rule_pack.py::test_an_alert_says_how_bad_it_is_whose_it_is_and_what_to_do",
        ),
        once=(
            "tests/unit/alerts/test_rule_pack.py::test_every_alert_has_all_kinds_of_tests",
            "tests/unit/alerts/test_rule_pack.py::test_expressions_read_what_the_catalog_has_or_their_own_file_records",
        ),
        edits={
            TEMPLATE: ("", RULE),
            "tests/rules/stragglers.yaml": ("", RULE_TESTS),
            "docs/runbooks/late-rank.md": (
                "^Alerts that link here: ",
                r"\g<0>`FabricRankVeryLate`, ",
            ),
        },
    ),
    "board": Recipe(
        "randomness",
        each=(
            "tests/unit/dashboards/test_grafana_json.py::test_no_flaw_is_found",
            "tests/unit/dashboards/test_grafana_json.py::test_grafana_s_own_types_know_every_key",
            "tests/unit/dashboards/test_grafana_json.py::test_grafana_s_published_schema_has_nothing_against_it",
        ),
        once=(
            "tests/unit/dashboards/test_grafana_json.py::test_titles_and_questions_are_the_boards_own",
        ),
        files={where(dashboards.grafana.boards, "randomness.py"): BOARD},
    ),
    "notifier": Recipe(
        "line",
        once=(
            "tests/conformance/test_notifier.py::test_every_receiver_is_found_by_its_file",
            "tests/unit/api/test_notify_line.py",
        ),
        files={
            where(api.oncall.notify.receivers, "line.py"): RECEIVER,
            "tests/unit/api/test_notify_line.py": RECEIVER_TEST,
        },
    ),
    "fault": Recipe(
        "slow_fan",
        each=(
            f"{FAULTS}::test_a_fault_strikes_a_job_of_several_hosts",
            f"{FAULTS}::test_a_fault_turns_knobs_at_its_place_and_reset_heals",
        ),
        once=(f"{FAULTS}::test_every_file_of_the_folder_is_a_fault_with_a_sentence",),
        files={
            where(simulator.faults, "slow_fan.py"): FAULT.replace("@CAUSE@", "STRAGGLER")
            .replace("fan_failed", "slow_fan")
            .replace("A fan stands still, and", "A fan turns slowly, and")
        },
    ),
    "executor": Recipe(
        "batch",
        once=(
            CLI,
            "tests/unit/api/test_batch.py",
        ),
        files={
            where(api.remote, "batch.py"): EXECUTOR,
            "tests/unit/api/test_batch.py": EXECUTOR_TEST,
        },
        edits={"api/verbs.toml": ("", verb("batch", "api.remote.batch"))},
    ),
    "verb": Recipe(
        "hello",
        once=(CLI,),
        files={"simulator/hello.py": VERB},
        edits={"simulator/verbs.toml": ("", verb("hello", "simulator.hello"))},
    ),
    "route": Recipe(
        "hello",
        once=(
            "tests/unit/api/test_tokens.py::test_every_route_is_open_or_asks_for_a_scope_and_no_line_is_about_nothing",
        ),
        files={where(api.http.routes, "hello.py"): ROUTE},
        edits={
            where(api.http.app): (r"^( +)catalog,\n", r"\g<0>\1hello,\n"),
            where(api.http.tokens.scopes): (
                r'^    "GET /v1/catalog".*\n',
                r'\g<0>    "GET /v1/hello": Scope.READ,\n',
            ),
        },
    ),
}
