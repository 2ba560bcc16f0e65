"""Which job, rank and user a process belongs to, and which processes hold a GPU: from `/proc`.

The environment of a process is its user's text: hostile, and full of secrets. Only the variables
named here are read, each is cut to a printable bound, and nothing else of it leaves this file.
The Slurm job in a process' environment is believed only as far as the kernel's cgroup agrees.

Limits: `/proc/<pid>/environ` shows the environment with which the program was *started*. A rank
that a script puts into `os.environ` later is not there (torchrun, srun and mpirun start new
programs, so theirs is); training loops can report it through `fabricscope_steps`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason
from collector.doors.host import Host
from collector.reading.cgroups import parse_place, read_cgroups
from collector.reading.sysfs import list_or_nothing

TEXT_CHARACTERS_MAX = 128
"""Of a job's, pod's or user's name. Kubernetes allows 253 for a pod, people use some 60."""
RANK_DIGITS_MAX = 9
"""A rank has six at most; longer digits are no rank."""
CLOCK_TICKS_PER_SECOND = 100
"""USER_HZ: what `/proc/<pid>/stat` counts in. 100 on every architecture that has GPUs."""

LINKS_PER_SEARCH = 4000
"""Open files that one search looks at: 2 microseconds each. The rest waits for the next search."""
FILES_PER_PROCESS_MAX = 1024
"""A program opens its GPU early, so its numbers are low; a server with 100,000 sockets must not
take the whole search."""
HOLDERS_MAX = 256
"""Processes with a GPU that are kept: 16 GPUs with 16 processes each. Others are counted."""

SEARCH_SECONDS = 10
"""How often containers' processes are searched for at most: a search takes 20 microseconds a
process, and a job's ranks all start at once."""
STATUSES_MAX = 20_000
"""Processes that one such search looks at. A host of a cluster has a few thousand."""

_JOB_VARIABLE = "FABRICSCOPE_JOB"
"""For users whose scheduler we do not know: it wins over all others."""
_RANKS = (
    # A launcher's own variable first: inside one Slurm task torchrun starts many ranks, and all of
    # them inherit the task's SLURM_PROCID.
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "", ""),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
    # Kubernetes numbers the pods of an indexed job; a rank only if each pod is one, so it is last.
    ("JOB_COMPLETION_INDEX", "", ""),
)
_KUBERNETES_JOBS = ("JOBSET_NAME", "TRAININGJOB_NAME", "TRAININGJOB", "JOB_NAME", "VC_JOB_NAME")
"""`JOB_NAME` alone means nothing (Jenkins sets it too); inside a pod it is what charts set."""
_POD_LABELS = "etc/podinfo/labels"
"""Where a pod has its own labels, if its template mounts them there: the path of Kubernetes' own
example of the downward API."""
_JOB_LABELS = (
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "batch.kubernetes.io/job-name",
    "job-name",
)
"""Labels that operators and the job controller put on their pods, the most specific first."""
_NAMED = frozenset(
    {
        _JOB_VARIABLE,
        *(name for names in _RANKS for name in names if name),
        *_KUBERNETES_JOBS,
        "SLURM_JOB_ID",
        "SLURM_JOBID",
        "SLURM_ARRAY_JOB_ID",
        "SLURM_ARRAY_TASK_ID",
        "SLURM_JOB_USER",
        "TORCHELASTIC_RUN_ID",
        "KUBERNETES_SERVICE_HOST",
        "POD_NAME",
        "POD_NAMESPACE",
        "HOSTNAME",
        "MASTER_ADDR",
        "PET_MASTER_ADDR",
        "CUDA_VISIBLE_DEVICES",
    }
)

_NO_RUN_ID = frozenset({"", "none", "None"})
"""torchrun's default for --rdzv-id: it names no job."""
_OPERATOR_POD = re.compile(r"(.+?)-(?:master|worker|node|launcher|chief|leader)(?:-\d+)+")
"""`<job>-worker-3` (Kubeflow's PyTorchJob), `<job>-node-0-3` (Trainer and JobSet)."""
_INNER_PIDS = re.compile(rb"^NSpid:((?:[ \t]+[0-9]{1,10})+)$", re.MULTILINE)


class ProcessStat(msgspec.Struct, frozen=True, gc=False):
    """The fields used of `/proc/<pid>/stat`; times in clock ticks."""

    command: str
    state: str
    parent: int
    major_faults: int
    cpu_ticks: int
    threads: int
    start_ticks: int
    """Since the boot. With the pid it names a process for good: pids come again."""


class ProcessFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a process. Empty texts and None where it is not known."""

    pid: int
    job: str = ""
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    user: str = ""
    """By the password file, else by Slurm, else the number."""
    scheduler: str = ""
    """`slurm`, `kubernetes` or empty."""
    pod: str = ""
    """Its name, or else its uid."""
    namespace: str = ""
    container: str = ""
    """The beginning of its id, as container runtimes print it; by its cgroup alone."""
    step: str = ""
    """Of a Slurm job, by the cgroup: a number, `batch`, `extern` or `interactive`."""
    command: str = ""
    """The kernel's short name for it, 15 characters: never the arguments, which hold secrets."""
    start_ns: int = 0
    """Unix nanoseconds, good to a second or so; 0 where the boot time is not known."""
    start_ticks: int = 0
    visible_gpus: tuple[int, ...] = ()
    """CUDA_VISIBLE_DEVICES where it is a list of numbers."""


def read_process(host: Host, pid: int, job_variables: Sequence[str] = ()) -> ProcessFacts | None:
    """The identity of a process, or None. ``job_variables`` win over the built-in names."""
    stat = read_stat(host, pid)
    if stat is None:
        return None
    variables = read_environment(host, pid, _NAMED.union(job_variables))
    place = parse_place(path for _, path in read_cgroups(host, pid))
    scheduler = ""
    if place.slurm_job or "SLURM_JOB_ID" in variables or "SLURM_JOBID" in variables:
        scheduler = "slurm"
    elif place.pod_uid or "KUBERNETES_SERVICE_HOST" in variables:
        scheduler = "kubernetes"
        variables = read_pod_labels(host, pid) | variables
    pod = find_pod(variables, host.name) or place.pod_uid
    custom = next(
        (variables[name] for name in (*job_variables, _JOB_VARIABLE) if variables.get(name)), ""
    )
    rank, local_rank, world_size = find_rank(variables)
    return ProcessFacts(
        pid=pid,
        job=custom or find_job(variables, scheduler, place.slurm_job),
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        user=find_user(host, pid, variables.get("SLURM_JOB_USER", "")),
        scheduler=scheduler,
        step=place.slurm_step,
        pod=pod,
        namespace=variables.get("POD_NAMESPACE", "") if pod else "",
        container=place.container,
        command=stat.command,
        start_ns=find_start(host, stat.start_ticks),
        start_ticks=stat.start_ticks,
        visible_gpus=parse_numbers(variables.get("CUDA_VISIBLE_DEVICES", "")),
    )


# --- pure: what the variables mean ---------------------------------------------------------------


def printable(text: bytes | str) -> str:
    """The text as a label's value: printable characters only, cut to the bound."""
    if isinstance(text, bytes):
        text = text[: 4 * TEXT_CHARACTERS_MAX].decode("utf-8", "replace")
    text = text[:TEXT_CHARACTERS_MAX].strip()
    return "".join(character for character in text if character.isprintable())


def parse_environment(block: bytes, names: frozenset[str]) -> dict[str, str]:
    r"""The named variables of an environment block, printable and cut; the first of a name wins.

    >>> parse_environment(b"RANK=3\0TOKEN=secret\0", frozenset({"RANK"}))
    {'RANK': '3'}
    """
    found: dict[str, str] = {}
    for entry in block.split(b"\0"):
        key, equals, value = entry.partition(b"=")
        name = key.decode("latin-1")
        if equals and name in names and name not in found:
            found[name] = printable(value)
    return found


def parse_count(text: str) -> int | None:
    """The whole number that a text is, if it is one.

    >>> parse_count("17"), parse_count("-1"), parse_count("1e3")
    (17, None, None)
    """
    is_count = text.isascii() and text.isdigit() and len(text) <= RANK_DIGITS_MAX
    return int(text) if is_count else None


def parse_numbers(text: str) -> tuple[int, ...]:
    """Numbers joined by commas; nothing if any part is not a number (GPU-…, MIG-…).

    >>> parse_numbers("4,5"), parse_numbers("GPU-8932f937"), parse_numbers("")
    ((4, 5), (), ())
    """
    numbers = [parse_count(part.strip()) for part in text.split(",")]
    known = tuple(number for number in numbers if number is not None)
    return known if len(known) == len(numbers) else ()


def find_rank(variables: Mapping[str, str]) -> tuple[int | None, int | None, int | None]:
    """Rank, local rank and world size, all from the same launcher's variables."""
    for names in _RANKS:
        rank = parse_count(variables.get(names[0], ""))
        if rank is not None:
            local_rank, size = (parse_count(variables.get(name, "")) for name in names[1:])
            return rank, local_rank, size if size is not None and size > rank else None
    return None, None, None


def find_job(variables: Mapping[str, str], scheduler: str, cgroup_job: str) -> str:
    """The job's name as its scheduler shows it; empty where no variable names it.

    A Slurm array's task is `12345_7`, as in `squeue`. The cgroup's number wins over a variable that
    contradicts it: a user can set variables and cannot choose a cgroup.
    """
    if scheduler == "slurm":
        job = variables.get("SLURM_JOB_ID") or variables.get("SLURM_JOBID", "")
        if cgroup_job and job != cgroup_job:
            return cgroup_job
        array = variables.get("SLURM_ARRAY_JOB_ID", "")
        task = variables.get("SLURM_ARRAY_TASK_ID", "")
        return f"{array}_{task}" if array and task else job
    if scheduler == "kubernetes":
        for name in (*_KUBERNETES_JOBS, *_JOB_LABELS):
            if variables.get(name):
                return variables[name]
        for name in ("MASTER_ADDR", "PET_MASTER_ADDR", "POD_NAME", "HOSTNAME"):
            found = _OPERATOR_POD.fullmatch(variables.get(name, "").partition(".")[0])
            if found:
                return found[1]
    run_id = variables.get("TORCHELASTIC_RUN_ID", "")
    return "" if run_id in _NO_RUN_ID else run_id


def find_pod(variables: Mapping[str, str], host_name: str) -> str:
    """The pod's name; a pod on its host's network has the host's name, which is no pod's."""
    if "KUBERNETES_SERVICE_HOST" not in variables and "POD_NAME" not in variables:
        return ""
    name = variables.get("POD_NAME") or variables.get("HOSTNAME", "")
    return "" if name == host_name else name


# --- files of one process ------------------------------------------------------------------------


def read_stat(host: Host, pid: int) -> ProcessStat | None:
    """The process' numbers; None when it is not there, or its text is no such line."""
    try:
        return parse_stat(host.read(f"proc/{pid}/stat"))
    except HostError:
        return None


def parse_stat(text: bytes) -> ProcessStat | None:
    """The numbers of `/proc/<pid>/stat`; None if it is none. The command may hold any character."""
    head, _, tail = text.rpartition(b")")
    fields = tail.split()
    try:
        return ProcessStat(
            command=printable(head.partition(b"(")[2]),
            state=fields[0].decode("ascii"),
            parent=int(fields[1]),
            major_faults=int(fields[9]),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            threads=int(fields[17]),
            start_ticks=int(fields[19]),
        )
    except (IndexError, ValueError):
        return None


def read_environment(host: Host, pid: int, names: frozenset[str]) -> dict[str, str]:
    """The named variables of a process; none where its environment may not be read."""
    try:
        block = host.read(f"proc/{pid}/environ")
    except HostError:
        return {}
    return parse_environment(block, names)


def read_pod_labels(host: Host, pid: int) -> dict[str, str]:
    """The labels of a process' pod that name its job; none unless the pod shows them to itself.

    The file is in the container, so its content is the user's: only these labels are taken.
    """
    path = "/".join(("proc", str(pid), "root", _POD_LABELS))
    try:
        text = host.read(path).decode("utf-8", "replace")
    except HostError:
        return {}
    return parse_pod_labels(text)


def parse_pod_labels(text: str) -> dict[str, str]:
    r"""The labels that name a job, of lines `key="value"` with Go's quotes.

    >>> parse_pod_labels('app="x"\njob-name="llm-70b"\n')
    {'job-name': 'llm-70b'}
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key in _JOB_LABELS and value.startswith('"') and value.endswith('"'):
            found[key] = printable(value[1:-1])
    return found


def find_user(host: Host, pid: int, slurm_user: str) -> str:
    """The name of the process' real user; the number where no name is known."""
    try:
        status = host.read(f"proc/{pid}/status")
    except HostError:
        return ""
    found = re.search(rb"^Uid:\s+(\d{1,10})\b", status, re.MULTILINE)
    if not found:
        return ""
    uid = found[1].decode("ascii")
    return find_user_name(host, uid) or slurm_user or uid


def find_user_name(host: Host, uid: str) -> str:
    """The name that the password file has for a user's number; empty if it has none."""
    try:
        lines = host.read("etc/passwd").splitlines()
    except HostError:
        return ""
    for line in lines:
        fields = line.split(b":", 3)
        if len(fields) > 3 and fields[2] == uid.encode():  # noqa: PLR2004 - name, x, number, rest
            return printable(fields[0])
    return ""


def find_start(host: Host, start_ticks: int) -> int:
    """When the process started, in unix nanoseconds; 0 where the boot time cannot be read."""
    try:
        found = re.search(rb"^btime (\d{1,12})$", host.read("proc/stat"), re.MULTILINE)
    except HostError:
        return 0
    if not found:
        return 0
    ns_per_tick = 1_000_000_000 // CLOCK_TICKS_PER_SECOND
    return int(found[1]) * 1_000_000_000 + start_ticks * ns_per_tick


# --- processes that hold a GPU -------------------------------------------------------------------

_GPU_FILE = re.compile(r"/dev/nvidia(\d{1,3})")
_CUDA_FILE = "/dev/nvidia-uvm"
"""CUDA opens it, and NVML does not: it distinguishes programs that compute from those that only
watch (nvidia-persistenced, dcgm, this agent)."""
_GPUS = "proc/driver/nvidia/gpus"


class GpuProcess(msgspec.Struct, frozen=True):
    """A process that has opened GPUs to compute on them."""

    pid: int
    start_ticks: int
    parent: int
    arguments_hash: int
    gpus: tuple[int, ...]
    """Indices in NVML's order. CUDA opens every GPU that it may see, not only those it uses."""


class ContainerProcesses:
    """Maps a container's process numbers to those of this host. For one thread.

    Inside a container a process has another number and its host another name, and that is what it
    writes into its logs. The kernel knows both numbers, and a container's environment its name.
    """

    def __init__(self) -> None:
        self._outer: dict[int, list[int]] = {}
        self._searched_ns: int | None = None

    def locate(self, host: Host, host_name: str, pid: int) -> int | None:
        """The number here of a process that a log names; None unless exactly one fits."""
        if host_name == host.name or not pid:
            return pid or None
        now_ns = host.monotonic_ns()
        if self._searched_ns is None or now_ns - self._searched_ns >= SEARCH_SECONDS * 10**9:
            self._outer, self._searched_ns = read_inner_pids(host), now_ns
        fitting = [
            outer
            for outer in self._outer.get(pid, ())
            if read_environment(host, outer, frozenset({"HOSTNAME"})).get("HOSTNAME") == host_name
        ]
        return fitting[0] if len(fitting) == 1 else None


def read_inner_pids(host: Host) -> dict[int, list[int]]:
    """For each number that a process has in a container of its own, its numbers here."""
    found: dict[int, list[int]] = {}
    names = [name for name in list_or_nothing(host, "proc") if name.isdecimal()]
    for name in names[:STATUSES_MAX]:
        try:
            match = _INNER_PIDS.search(host.read(f"proc/{name}/status"))
        except HostError:
            continue  # it has ended since
        numbers = match[1].split() if match else []
        if len(numbers) > 1:
            found.setdefault(int(numbers[-1]), []).append(int(name))
    return found


class GpuProcessFinder:
    """Finds the processes that hold a GPU, a bounded part of all processes at each search.

    Processes that were not there at the search before come first, the youngest first: a job's ranks
    are found as they start. All others are checked in turn.
    """

    def __init__(self) -> None:
        self._holders: dict[int, GpuProcess] = {}
        self._seen: set[int] = set()
        self._turn: list[int] = []
        self.refused: set[int] = set()
        """Processes whose open files may not be seen: other users', without root."""
        self.left_out: set[int] = set()
        """Processes with a GPU beyond HOLDERS_MAX."""
        self._indices: dict[int, int] | None = None

    def find(self, host: Host) -> list[GpuProcess]:
        """The processes known to hold a GPU, without the forked helpers (data loaders) of another.

        Those that ended are left out, as far as the list of processes shows; a pid that came again
        has another ``start_ticks``.
        """
        if not has_gpus(host):
            return []
        alive = {int(name) for name in list_or_nothing(host, "proc") if name.isdecimal()}
        self._holders = {pid: held for pid, held in self._holders.items() if pid in alive}
        self._search(host, alive)
        holders = sorted(self._holders.values(), key=lambda held: held.pid)
        return [held for held in holders if not self._is_helper(held)]

    def _search(self, host: Host, alive: set[int]) -> None:
        if not self._turn:
            self._turn = sorted(alive)  # the next round over all
        fresh = sorted(alive - self._seen)
        self._seen &= alive
        self.refused &= alive
        self.left_out &= alive
        links = 0
        if self._indices is None:
            # Once: GPUs do not move, and the driver's files may wait for a GPU that hangs.
            self._indices = read_gpu_indices(host)
        while (fresh or self._turn) and links < LINKS_PER_SEARCH:
            pid = (fresh or self._turn).pop()
            if pid not in alive:
                continue
            self._seen.add(pid)
            looked, held = look_at(host, pid, self._indices)
            links += looked or 1
            self.refused.discard(pid)
            self.left_out.discard(pid)
            if looked is None:
                self.refused.add(pid)
            if held is None:
                self._holders.pop(pid, None)
            elif pid in self._holders or len(self._holders) < HOLDERS_MAX:
                self._holders[pid] = held
            else:
                self.left_out.add(pid)

    def _is_helper(self, held: GpuProcess) -> bool:
        """Whether it was forked from another holder: open files and arguments are inherited."""
        parent = self._holders.get(held.parent)
        return parent is not None and parent.arguments_hash == held.arguments_hash


def has_gpus(host: Host) -> bool:
    return host.exists(_GPUS) or host.exists("dev/nvidiactl")


def look_at(
    host: Host, pid: int, indices: Mapping[int, int]
) -> tuple[int | None, GpuProcess | None]:
    """How many open files were checked (None: not permitted), and the holder if it is one."""
    try:
        names = host.list(f"proc/{pid}/fd")
    except HostError as error:
        return None if error.reason is UnreadReason.UNREADABLE else 0, None
    minors, computes = set(), False
    names.sort(key=len)  # low numbers first
    for name in names[:FILES_PER_PROCESS_MAX]:
        try:
            target = host.link_target(f"proc/{pid}/fd/{name}")
        except HostError:
            continue
        computes |= target == _CUDA_FILE
        if found := _GPU_FILE.fullmatch(target):
            minors.add(int(found[1]))
    stat = read_stat(host, pid) if minors and computes else None
    if stat is None:
        return len(names), None
    try:
        arguments = host.read(f"proc/{pid}/cmdline")
    except HostError:
        arguments = str(pid).encode()
    gpus = tuple(sorted(indices.get(minor, minor) for minor in minors))
    return len(names), GpuProcess(pid, stat.start_ticks, stat.parent, hash(arguments), gpus)


def read_gpu_indices(host: Host) -> dict[int, int]:
    """NVML's index (PCI order) of each GPU by the minor number of its `/dev/nvidia<minor>`."""
    indices: dict[int, int] = {}
    for index, address in enumerate(list_or_nothing(host, _GPUS)):
        try:
            text = host.read(f"{_GPUS}/{address}/information")
        except HostError:
            continue
        if found := re.search(rb"^Device Minor:\s*(\d{1,3})\s*$", text, re.MULTILINE):
            indices[int(found[1])] = index
    return indices


def choose_gpus(held: tuple[int, ...], facts: ProcessFacts) -> tuple[int, ...]:
    """The GPU of a rank (launchers: local rank n uses the n-th visible), else all it has opened."""
    visible = facts.visible_gpus
    order = visible if visible and set(visible) <= set(held) else held
    if len(order) > 1 and facts.local_rank is not None and facts.local_rank < len(order):
        return (order[facts.local_rank],)
    return order
