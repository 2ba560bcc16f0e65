"""NCCL's variables: of the processes that hold GPUs, and of `/etc/nccl.conf`.

An environment is full of secrets. Only variables whose names begin with `NCCL_` are read, and
of those a value that looks like a secret is not kept.
"""

from __future__ import annotations

import re
from collections import Counter

from collector.audit.settings import (
    CAN_LOCK,
    FILE_MISSING,
    KIND,
    KIND_JOB,
    MEMLOCK,
    NCCL_PREFIX,
    NONE,
    UNLIMITED,
)
from collector.contract.errors import HostError
from collector.contract.identity import printable
from collector.contract.reason import UnreadReason
from collector.reading.configuration.gather import Gatherer
from collector.reading.jobs import GpuProcessFinder, ProcessFacts, read_process

PROCESSES_MAX = 64
"""Processes with GPUs whose environment is read: sixteen GPUs with four each."""
JOBS_MAX = 16
"""Jobs of one host whose variables are kept: one for each GPU."""
RANKS_DIFFERING_MAX = 8
"""Ranks of a job whose own variables are kept because they differ from the job's."""
VARIABLES_MAX = 64
"""Variables of one process that are kept; NCCL knows some 150, people set ten."""
SEARCHES = 8
"""Looks at the list of processes in one read: each goes a bounded way (`LINKS_PER_SEARCH`)."""
HIDDEN = "(hidden: it looks like a secret)"

NCCL_CONFIGURATION = "etc/nccl.conf"
CONFIGURATION_DEVICE = "/etc/nccl.conf"
CONFIGURATION_LINES_MAX = 256
NAMES_OF_FILES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_TUNER_CONFIG_PATH", "NCCL_CONF_FILE")
"""Variables that name a file which must be there."""
CAN_LOCK_BIT = 1 << 14
"""CAP_IPC_LOCK: a process with it may lock any amount of memory."""

_NAME = re.compile(r"NCCL_[A-Z0-9_]{1,60}")
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|APIKEY|API_KEY|PRIVATE")
_SECRET_VALUE = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9+/_=-]{32,}")
_LOCKED = re.compile(r"^Max locked memory\s+(unlimited|[0-9]+)\s", re.MULTILINE)
_CAPABILITIES = re.compile(r"^CapEff:\s*([0-9a-f]{1,16})\s*$", re.MULTILINE)

Variables = dict[str, str]


def read_jobs(gatherer: Gatherer, finder: GpuProcessFinder) -> None:
    """The variables of every job on this host, and of the file that all jobs share."""
    read_configuration(gatherer)
    held = finder.find(gatherer.host)
    for _ in range(SEARCHES - 1):
        again = finder.find(gatherer.host)
        if again == held and held:
            break
        held = again
    if finder.refused:
        why = f"{len(finder.refused)} processes of other users; needs root or CAP_SYS_PTRACE"
        gatherer.miss("", "NCCL environment", UnreadReason.UNREADABLE, why)
    jobs: dict[str, list[tuple[ProcessFacts, Variables]]] = {}
    for process in held[:PROCESSES_MAX]:
        facts = read_process(gatherer.host, process.pid)
        if facts is None:
            continue
        variables = read_variables(gatherer, process.pid)
        if variables is None:
            continue
        name = f"job {facts.job}" if facts.job else f"process {process.pid}"
        if name in jobs or len(jobs) < JOBS_MAX:
            jobs.setdefault(name, []).append((facts, variables))
    for name, ranks in jobs.items():
        keep_job(gatherer, name, ranks)


def keep_job(gatherer: Gatherer, name: str, ranks: list[tuple[ProcessFacts, Variables]]) -> None:
    first = ranks[0][0].pid
    gatherer.add(name, KIND, KIND_JOB, f"proc/{first}/environ")
    names = sorted({variable for _, variables in ranks for variable in variables})
    common: Variables = {}
    for variable in names:
        values = Counter(variables.get(variable, "") for _, variables in ranks)
        common[variable] = values.most_common(1)[0][0]
        pid = next(facts.pid for facts, had in ranks if had.get(variable, "") == common[variable])
        gatherer.add(name, variable, common[variable], f"proc/{pid}/environ")
    differing = 0
    for facts, variables in ranks:
        others = {v for v in names if variables.get(v, "") != common[v]}
        if not others or differing >= RANKS_DIFFERING_MAX:
            continue
        differing += 1
        rank = f"{name} {'process' if facts.rank is None else 'rank'} " + str(
            facts.pid if facts.rank is None else facts.rank
        )
        gatherer.add(rank, KIND, KIND_JOB, f"proc/{facts.pid}/environ")
        for variable in sorted(others):
            value = variables.get(variable) or NONE
            gatherer.add(rank, variable, value, f"proc/{facts.pid}/environ")
    read_limits(gatherer, name, first)
    for variable in NAMES_OF_FILES:
        if path := common.get(variable):
            check_file(gatherer, name, first, variable, path)


def read_variables(gatherer: Gatherer, pid: int) -> Variables | None:
    """NCCL's variables of a process; None where they may not be read, which is reported."""
    path = f"proc/{pid}/environ"
    try:
        block = gatherer.host.read(path)
    except HostError as error:
        gatherer.refused(f"process {pid}", "NCCL environment", error)
        return None
    return parse_variables(block.split(b"\0"))


def parse_variables(entries: list[bytes]) -> Variables:
    """NCCL's variables of entries `NAME=value`, without what looks like a secret.

    >>> parse_variables([b"NCCL_ALGO=Ring", b"AWS_SECRET=x", b"NCCL_API_TOKEN=abc"])
    {'NCCL_ALGO': 'Ring', 'NCCL_API_TOKEN': '(hidden: it looks like a secret)'}
    """
    found: Variables = {}
    for entry in entries:
        if not entry.startswith(NCCL_PREFIX.encode()) or len(found) >= VARIABLES_MAX:
            continue
        key, equals, raw = entry.partition(b"=")
        name, value = key.decode("latin-1"), printable(raw.decode("utf-8", "replace")).strip()
        if not equals or not value or not _NAME.fullmatch(name) or name in found:
            continue
        is_secret = _SECRET_NAME.search(name) or _SECRET_VALUE.fullmatch(value)
        found[name] = HIDDEN if is_secret else value
    return found


def read_configuration(gatherer: Gatherer) -> None:
    """The variables that the host sets for every job."""
    try:
        lines = gatherer.host.read(NCCL_CONFIGURATION).splitlines()
    except HostError as error:
        gatherer.refused(CONFIGURATION_DEVICE, "NCCL environment", error)
        return
    entries = [line.strip() for line in lines[:CONFIGURATION_LINES_MAX]]
    variables = parse_variables([entry for entry in entries if not entry.startswith(b"#")])
    if not variables:
        return
    gatherer.add(CONFIGURATION_DEVICE, KIND, KIND_JOB, NCCL_CONFIGURATION)
    for name, value in variables.items():
        gatherer.add(CONFIGURATION_DEVICE, name, value, NCCL_CONFIGURATION)


def read_limits(gatherer: Gatherer, job: str, pid: int) -> None:
    """How much memory a job's process may lock: what it registers with a NIC is locked."""
    try:
        found = _LOCKED.search(gatherer.read(f"proc/{pid}/limits"))
        status = _CAPABILITIES.search(gatherer.read(f"proc/{pid}/status"))
    except HostError as error:
        gatherer.refused(job, MEMLOCK, error)
        return
    if found:
        gatherer.add(job, MEMLOCK, found[1].replace("unlimited", UNLIMITED), f"proc/{pid}/limits")
    if status:
        is_able = bool(int(status[1], 16) & CAN_LOCK_BIT)
        gatherer.add(job, CAN_LOCK, "yes" if is_able else "no", f"proc/{pid}/status")


def check_file(gatherer: Gatherer, job: str, pid: int, variable: str, path: str) -> None:
    """Note a file that a job names and that is not there, as the job itself sees it.

    The path is the user's: only whether the name is there is asked, and nothing outside its root.
    """
    parts = path.split("/")
    if not path.startswith("/") or ".." in parts or "\0" in path:
        return
    root = "/".join(("proc", str(pid), "root"))
    if not gatherer.host.exists(root):
        return
    try:
        gatherer.host.list(root)
        gatherer.host.stat(f"{root}{path}")
    except HostError as error:
        if error.reason is UnreadReason.ABSENT:
            gatherer.add(job, FILE_MISSING, f"{variable}={path}", f"{path} below {root}")
        else:
            gatherer.miss(job, variable, error.reason, error.detail)
