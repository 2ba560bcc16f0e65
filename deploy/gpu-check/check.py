"""A live GPU job, watched: breaks it on purpose and prints how soon the verdict came.

    python3 deploy/gpu-check/check.py --out FOLDER [--fabricscope PROGRAM] [--inspector LIBRARY]

Eight NCCL ranks on one GPU, each in a network namespace of its own with the real agent beside it,
and the real service. One link is limited, one rank slowed down, one stopped. Needs Linux, root,
iproute2, `fabricscope` with the extras `agent` and `server`, and for the ranks a Python with
PyTorch and CUDA (`--fake` needs neither). What is measured, and its limits: docs/live-on-gpus.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from cost import measure_agents, summary
from faults import FAULTS, Settings, asking, culprit_of, try_fault, unexpected
from job import HERE, RANKS, Job, Plan, facts, running
from namespaces import hosts, mps
from watch import Agents, Service, serving, watching

JOB = "gpu-check"
FIRST_STEPS = 10
KNOWN_SECONDS = 40.0
"""Until the service shows the job: agents start, read, and send every five seconds."""
AFTER_SECONDS = 20.0
"""A verdict on a rank that was stopped is waited for so long after it went on."""
END_SECONDS = 15.0
"""Of `--seconds` that are kept for ending everything."""
FAULT_SECONDS_MIN = 25.0
"""A fault that would have less is not begun: a verdict by a job's times alone needs some 15."""
LOG_BYTES_MAX = 1 << 20
"""Of each log that is kept; the end of a longer one."""
TARGET_PERCENT = 0.5
"""Of step time that agents may cost."""
POLL_SECONDS = 0.5


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="FOLDER", help="results and logs go there")
    add("--fabricscope", default=os.environ.get("FABRICSCOPE", "fabricscope"), metavar="PROGRAM")
    add("--python", default=sys.executable, help="runs the ranks: one with PyTorch")
    add("--inspector", default="", metavar="LIBRARY", help="NCCL Inspector; default: a stand-in")
    add("--runs", type=int, default=1, help="how often all faults are tried")
    add("--faults", default="b,a,c", help="a: slow link, b: slow rank, c: stopped rank")
    add("--rate", default="300mbit", help="of the slow link")
    add("--slow-ms", type=float, default=20.0, help="that the slow rank sleeps in each step")
    add("--healthy", type=float, default=15.0, help="seconds before the first fault")
    add(
        "--quiet",
        type=float,
        default=35.0,
        help="seconds between faults (see the page)",
    )
    add("--linger", type=float, default=4.0, help="seconds that a fault lasts after its verdict")
    add("--turn", type=float, default=4.0, help="seconds with, and without, agents in turn")
    add("--pairs", type=int, default=4, help="of such turns; 0: agents' cost is not measured")
    add(
        "--gpu-readers",
        default=str(RANKS),
        help="agents that read the GPU while their cost is measured, one measurement each: 8,1,0",
    )
    add(
        "--spare-cores",
        type=int,
        default=0,
        help="cores that agents and service have apart from the ranks; 0: all share all",
    )
    add("--bare", type=float, default=12.0, help="seconds without plugin; 0: not measured")
    add(
        "--seconds",
        type=float,
        default=0.0,
        help="be done by then: what does not fit is left out; 0: no limit",
    )
    add("--fake", action="store_true", help="ranks without GPU and NCCL, to try the check itself")
    add("--keep", action="store_true", help="keep the working folder with all records")
    return parser.parse_args()


class Check:
    """One run of the script: its options, its folders and what it has found so far."""

    def __init__(self, options: argparse.Namespace, work: Path) -> None:
        self.options, self.work = options, work
        self.out: Path = options.out.absolute()
        self.logs = self.out / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.began = time.monotonic()
        self.found: dict[str, Any] = {
            "options": {name: str(value) for name, value in vars(options).items()},
            "began_ns": time.time_ns(),
            "machine": machine(),
            "agents": [],
            "faults": [],
        }

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {text}", flush=True)

    def save(self) -> None:
        path = self.out / "result.json"
        path.write_text(json.dumps(self.found, indent=1) + "\n", "utf-8")

    def seconds_left(self) -> float:
        """For a fault, of `--seconds`: without what ending everything takes."""
        limit: float = self.options.seconds or float("inf")
        return limit - END_SECONDS - (time.monotonic() - self.began)

    def plan(self, plugin: str) -> Plan:
        is_fake = self.options.fake
        ranks, _ = self.cores()
        return Plan(JOB, self.options.python, plugin, is_fake, self.work / "shim", ranks)

    def cores(self) -> tuple[list[int], list[int]]:
        """The ranks' and the watchers'; empty: all."""
        if not (spare := self.options.spare_cores):
            return [], []
        own = sorted(os.sched_getaffinity(0))
        return own[:-spare], own[-spare:]

    def gpu_readers(self) -> list[int]:
        return [int(one) for one in self.options.gpu_readers.split(",") if one]


def main() -> int:
    options = parse()
    if fault := missing(options):
        print(fault, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # A shell that starts it in the background has it ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    work = Path(tempfile.mkdtemp(prefix="gpu-check-"))
    check = Check(options, work)
    try:
        run_check(check)
    except KeyboardInterrupt:
        check.say("interrupted")
        return 130
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        check.found["error"] = str(error)
        check.say(f"failed: {error}")
        return 1
    finally:
        check.found["seconds"] = round(time.monotonic() - check.began, 1)
        check.save()
        keep_logs(check)
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)
        print(table(check.found))
        print(f"\n{check.out / 'result.json'} has all of it; logs are beside it.")
    return 0


def missing(options: argparse.Namespace) -> str:
    """What this machine lacks; empty if nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc", "unshare", "mount", "taskset", options.fabricscope, options.python):
        if shutil.which(program) is None:
            return f"{program} is not there (iproute2, util-linux, --fabricscope, --python)"
    if options.spare_cores and not 0 < options.spare_cores < len(os.sched_getaffinity(0)):
        cores = len(os.sched_getaffinity(0))
        return f"--spare-cores {options.spare_cores}: this machine has {cores} cores"
    readers = options.gpu_readers.split(",")
    if not all(one.isdigit() and int(one) <= RANKS for one in readers if one):
        return f"--gpu-readers {options.gpu_readers}: give numbers from 0 to {RANKS}, such as 8,1,0"
    if unknown := set(options.faults.split(",")) - {*FAULTS, ""}:
        return f"--faults {options.faults}: {', '.join(sorted(unknown))} is none of a, b, c"
    return ""


def run_check(check: Check) -> None:
    options = check.options
    plugin = "" if options.fake else find_plugin(check)
    check.found["plugin"] = plugin
    (check.work / "shim").mkdir()
    words = [options.fabricscope, "shim"]
    shim = subprocess.run(words, check=True, capture_output=True, timeout=60).stdout
    (check.work / "shim/fabricscope_steps.py").write_bytes(shim)
    with hosts(RANKS), nullcontext() if options.fake else mps():
        if options.bare:
            measure_bare(check)
        check.say("ranks start, with the plugin")
        with running(check.plan(plugin), check.work / "watched", check.logs) as job:
            took = job.wait_for_steps(FIRST_STEPS)
            check.say(f"the job runs: {FIRST_STEPS} steps after {took:.0f} s")
            check.found["machine"] |= facts(check.logs, "watched")
            job.check_records()
            for readers in check.gpu_readers() if options.pairs else []:
                with watched(check, job, f"cost{readers}", readers) as (service, agents):
                    measure_cost(check, service, job, agents, readers)
            # With a service that has not seen the agents being held.
            with watched(check, job, "faults", RANKS) as (service, agents):
                watch_job(check, service, job, agents)


@contextmanager
def watched(
    check: Check, job: Job, name: str, gpu_readers: int
) -> Iterator[tuple[Service, Agents]]:
    """A service and agents that know all ranks of the job."""
    program, folder = check.options.fabricscope, check.work / name
    _, cores = check.cores()
    log = check.logs / f"service-{name}.log"
    with serving(program, folder / "service", log, cores=cores) as service:
        service.wait_until_ready()
        with watching(
            program, service, job, folder, check.logs, cores=cores, gpu_readers=gpu_readers
        ) as agents:
            wait_until_known(check, service, agents)
            yield service, agents


def measure_bare(check: Check) -> None:
    """A job without plugin and without agents: what the plugin costs is the difference to it."""
    check.say("ranks start, without plugin and agents")
    with running(check.plan(""), check.work / "bare", check.logs) as job:
        took = job.wait_for_steps(FIRST_STEPS)
        check.say(f"the bare job runs: {FIRST_STEPS} steps after {took:.0f} s")
        start_ns = time.time_ns()
        time.sleep(check.options.bare)
        job.check()
        check.found["bare"] = summary(job.steps_between(start_ns, time.time_ns()))
    check.save()


def measure_cost(
    check: Check, service: Service, job: Job, agents: Agents, gpu_readers: int
) -> None:
    check.say(f"agents in turns: held, running; {gpu_readers} of them read the GPU")
    cost = measure_agents(job, agents, service, check.options.turn, check.options.pairs)
    check.found["agents"].append(cost | {"gpu_readers": gpu_readers})
    check.say(f"agents cost {cost['difference_percent']} % of a step")
    check.save()


def watch_job(check: Check, service: Service, job: Job, agents: Agents) -> None:
    options = check.options
    start_ns = time.time_ns()
    with asking(0, None if options.fake else check.out / "ras-healthy.jsonl"):
        time.sleep(options.healthy)
    job.check()
    check.found["unexpected"] = unexpected(service.incidents(start_ns))
    try_faults(check, service, job)
    incidents = service.incidents(start_ns)
    check.found["incidents"] = incidents
    check.found["agents_running"] = agents.running
    (check.out / "incidents.json").write_text(json.dumps(incidents, indent=1) + "\n", "utf-8")


def wait_until_known(check: Check, service: Service, agents: Agents) -> None:
    """Until the service shows all ranks of the job; a warning if it does not in time."""
    ends = time.monotonic() + KNOWN_SECONDS
    while time.monotonic() < ends:
        try:
            ranks = service.get(f"/v1/jobs/{JOB}/ranks")["items"]
        except (OSError, ValueError, KeyError):
            ranks = []
        if len({one["rank"] for one in ranks}) >= len(agents.processes):
            check.say("the service knows the job and its ranks")
            return
        time.sleep(POLL_SECONDS)
    check.say(f"the service does not know all ranks after {KNOWN_SECONDS:.0f} s; it goes on")
    check.found["warning"] = f"not all ranks were known; {agents.running} agents run"


def try_faults(check: Check, service: Service, job: Job) -> None:
    options = check.options
    settings = Settings(
        options.rate, options.slow_ms, options.linger, AFTER_SECONDS, is_fake=options.fake
    )
    letters = [letter for letter in options.faults.split(",") if letter]
    planned = [(run, letter) for run in range(options.runs) for letter in letters]
    for number, (run, letter) in enumerate(planned):
        quiet = options.quiet if number else 0.0
        if check.seconds_left() < quiet + FAULT_SECONDS_MIN:
            left_out = [f"{run + 1}{letter}" for run, letter in planned[number:]]
            check.say(f"no time for {', '.join(left_out)}")
            check.found["left_out"] = left_out
            return
        time.sleep(quiet)
        rank = culprit_of(letter, run)
        check.say(f"run {run + 1}, fault {letter}, rank {rank}")
        patience = min(FAULTS[letter].patience_seconds, check.seconds_left())
        fault = FAULTS[letter]._replace(patience_seconds=patience)
        ras = check.out / f"ras-run{run + 1}.jsonl"
        done = try_fault(fault, rank, service, job, settings, ras) | {"run": run + 1}
        check.found["faults"].append(done)
        check.save()
        check.say(line_of(done))


def find_plugin(check: Check) -> str:
    """NCCL Inspector where it was named; else the stand-in, compiled here."""
    named = check.options.inspector or os.environ.get("NCCL_PROFILER_PLUGIN", "")
    if named:
        return str(named)
    library = check.work / "librecorder.so"
    source = str(HERE / "recorder.c")
    for compiler in ("cc", "gcc", "clang", "nvcc"):
        if shutil.which(compiler) is None:
            continue
        through = ["-Xcompiler", "-fPIC,-pthread"] if compiler == "nvcc" else ["-fPIC", "-pthread"]
        words = [compiler, "-O2", "-shared", *through, "-o", str(library), source]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        if done.returncode == 0:
            check.say(f"built a stand-in for NCCL Inspector with {compiler}")
            return str(library)
        check.say(f"{compiler} could not build the stand-in: {done.stderr.strip()[-500:]}")
    raise RuntimeError("no C compiler built recorder.c: name NCCL Inspector with --inspector")


def machine() -> dict[str, str]:
    found = {"cores": str(os.cpu_count()), "kernel": os.uname().release}
    if shutil.which("nvidia-smi"):
        words = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        found["gpu"] = done.stdout.strip()
    return found


def keep_logs(check: Check) -> None:
    """Keep NCCL's own words of rank 0 beside the other logs, and of each log only its end."""
    said = check.work / "watched/node0/nccl_debug.log"
    if said.exists():
        shutil.copy(said, check.logs / "nccl_debug-node0.log")
    for path in (*check.logs.glob("*"), *check.out.glob("ras-*.jsonl")):
        if path.is_file() and path.stat().st_size > LOG_BYTES_MAX:
            with path.open("rb") as file:
                file.seek(-LOG_BYTES_MAX, os.SEEK_END)
                end = file.read()
            path.write_bytes(end)


# --- what is printed -----------------------------------------------------------------------------


def seconds_of(number: float | None) -> str:
    return "none" if number is None else f"{number:.1f} s"


def answer_of(done: dict[str, Any]) -> str:
    """The verdicts on a fault in a word."""
    if done["accused_others"]:
        return "WRONG: accuses another host"
    if done["right_verdict_seconds"] is not None:
        return "right"
    if not done["verdicts"]:
        return "no verdict"
    names_it = any(one["culprit"].get("host") == done["host"] for one in done["verdicts"])
    return "another cause" if names_it else "names no culprit"


def line_of(done: dict[str, Any]) -> str:
    right, first = done["right_verdict_seconds"], done["first_verdict_seconds"]
    word = answer_of(done)
    said = done["verdicts"][0] if done["verdicts"] else {}
    what = f"{said['cause']} {said['confidence']:.2f}: {said['summary']}" if said else ""
    return f"first verdict {seconds_of(first)}, right one {seconds_of(right)} ({word}) {what}"


def table(found: dict[str, Any]) -> str:
    lines = ["", "fault                               rank  first     right     answer"]
    for done in found["faults"]:
        what = f"{done['run']}{done['fault']} {done['what']}"
        first, right = (
            seconds_of(done[name]) for name in ("first_verdict_seconds", "right_verdict_seconds")
        )
        said = done["verdicts"][0]["summary"] if done["verdicts"] else ""
        lines.append(f"{what:<35} {done['rank']:<5} {first:<9} {right:<9} {answer_of(done)}")
        lines += [f"    {said}"] if said else []
        lines += [f"    accused another: {one['summary']}" for one in done["accused_others"]]
    for one in found.get("unexpected", []):
        lines.append(f"before any fault: {one['summary']}")
    for cost in found.get("agents", []):
        difference, error = cost["difference_percent"], cost["standard_error_percent"]
        lines.append(
            f"agents, {cost['gpu_readers']} of them read the GPU: {difference} % of a step "
            f"(standard error {error}; target {TARGET_PERCENT}), {cost['agent_cores']} cores each, "
            f"service {cost['service_cores']} cores"
        )
    bare = found.get("bare", {}).get("mean_ms")
    if bare and found["plugin"] and (costs := found.get("agents")):
        beside = costs[0]["without"].get("mean_ms", bare)
        lines.append(
            f"plugin: step {bare} ms without, {beside} ms with: {(beside / bare - 1) * 100:.2f} % "
            "(two jobs, one after the other)"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
