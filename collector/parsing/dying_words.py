"""What jobs print when they die: one table of patterns, each with where it comes from.

A line is one of four things. A process that failed by itself (*own*: out of memory, an exception
of its program, a signal). A process that lost others or waited for them in vain (*peer*: it is a
victim, whatever it prints). What follows a failure (*after*). The end of a job from outside
(*end*). Only the first accuses whom it is about.

Two lines name a rank and accuse none. `Received a dump signal due to a collective timeout
from rank 1`: rank 1 was the first to notice. `[3] joined but didn't finish collective #42`: of a
rank whose watchdog has stopped to report. Of our own eight ranks of which one was killed (PyTorch
2.11, NCCL 2.28.9), both name neighbours of the dead one.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from collector.contract.verdict import Reason


class Role(enum.StrEnum):
    """What a line says about the process that it is about."""

    OWN = "own"
    PEER = "peer"
    AFTER = "after"
    END = "end"


class Words(NamedTuple):
    """One row of the table."""

    name: str
    role: Role
    reason: Reason
    is_proof: bool
    """Whether the line alone shows that a process of the job has ended, or is about to."""
    pattern: re.Pattern[str]
    """Groups `peer`, `rank`, `local_rank`, `pid`, `host`, `signal` and `status` are kept."""
    source: str


RECORDED = "own recording 2026-11-17, PyTorch 2.11, NCCL 2.28.9"
OWN, PEER, AFTER, END = Role.OWN, Role.PEER, Role.AFTER, Role.END


def row(
    name: str, role: Role, reason: Reason, pattern: str, source: str, *, is_proof: bool = True
) -> Words:
    return Words(name, role, reason, is_proof, re.compile(pattern), source)


TABLE: tuple[Words, ...] = (
    # PyTorch
    row(
        "collective_timeout", PEER, Reason.TIMED_OUT,
        r"Watchdog caught collective operation timeout: (?P<what>WorkNCCL\([^)]{0,200}\))",
        f"{RECORDED}; pytorch/pytorch ProcessGroupNCCL.cpp",
    ),
    row(
        "async_exception", PEER, Reason.CONNECTION_LOST,
        r"Collective (?P<what>WorkNCCL\([^)]{0,200}\)).{0,80}raised the following async exception",
        RECORDED,
    ),
    row(
        "dump_signal", AFTER, Reason.TIMED_OUT,
        r"Received a dump signal due to a collective timeout from +(?:this local rank|rank [0-9]+)",
        RECORDED,
    ),
    row(
        "watchdog_stuck", PEER, Reason.TIMED_OUT,
        r"Heartbeat monitor timed out|watchdog got stuck for [0-9]+ seconds",
        "pytorch/pytorch pull 112518; xdit-project/xDiT issue 147, hiyouga/LlamaFactory issue 8549",
    ),
    row(
        "taken_down", AFTER, Reason.UNKNOWN,
        r"Process group watchdog thread terminated with exception"
        r"|Some NCCL operations have failed or timed out|we are taking the entire process down",
        f"{RECORDED}; tatsu-lab/stanford_alpaca issue 207 (PyTorch 1.13)",
    ),
    row(
        "store_lost", AFTER, Reason.CONNECTION_LOST,
        r'Failed to check the "should dump" flag on TCPStore'
        r"|(?:recvValue|sendBytes)\w* failed on SocketImpl|Failed to get exception dump flag",
        "sgl-project/sglang issue 20859, pytorch/pytorch issue 128680; also where rank 0 ended",
        is_proof=False,
    ),
    row(
        "interrupted", END, Reason.ENDED,
        r"SignalException: Process [0-9]+ got signal: (?P<signal>[0-9]+)|^KeyboardInterrupt\b",
        "torch/distributed/elastic/multiprocessing/api.py (2.0 to 2.11)",
    ),
    # NCCL and its networks
    row(
        "ib_completion", PEER, Reason.CONNECTION_LOST,
        r"NET/IBP? ?: ?Got completion from peer (?P<peer>[^ <]{1,255})<[0-9]+> with "
        r"(?:error |status=)(?P<status>[0-9]{1,3})",
        "NVIDIA/nccl issues 928 (2.18), 1405, 1664, 1814 (2.2x)",
    ),
    row(
        "ofi_completion", PEER, Reason.CONNECTION_LOST,
        r"NET/OFI Request 0x[0-9a-f]+ completed with error\. RC: (?P<status>[0-9]+)\. Error: "
        r"(?P<what>[0-9]+ \([^(]{1,120})"
        r"(?:.{0,400}Peer EFA addr: fi_addr_efa://\[(?P<peer>[^\]]+)\])?",
        "aws-ofi-nccl, with NCCL 2.27.3 on EFA",
    ),
    row(
        "peer_closed", PEER, Reason.CONNECTION_LOST,
        r"(?:Connection closed by remote peer|Call to (?:recv|send|connect)\S* (?:from|to)) "
        r"(?P<peer>[^ <]{1,255})<[0-9]+>",
        f"{RECORDED}; NVIDIA/nccl issue 795, nccl-tests issue 166; also at an orderly end",
        is_proof=False,
    ),
    row(
        "nccl_cuda", OWN, Reason.UNKNOWN, r"ncclUnhandledCudaError|unhandled cuda error",
        "NVIDIA/nccl-tests issue 322; ncclGetErrorString", is_proof=False,
    ),
    row(
        "nccl_usage", OWN, Reason.PROGRAM, r"ncclInvalid(?:Usage|Argument)\b",
        "ncclResult_t in nccl.h", is_proof=False,
    ),
    row(
        "nccl_failure", PEER, Reason.CONNECTION_LOST,
        r"nccl(?:Remote|System|Internal)Error\b|NCCL error(?: in)?: |Test NCCL failure",
        f"{RECORDED}; NVIDIA/nccl-tests issues 166, 252",
    ),
    # Launchers
    row(
        "elastic_exit", AFTER, Reason.UNKNOWN,
        r"failed \(exitcode: (?P<signal>-?[0-9]{1,3})\) local_rank: (?P<local_rank>[0-9]{1,5}) "
        r"\(pid: (?P<pid>[0-9]{1,10})\)",
        "meta-llama/llama issues 608, 856; NVIDIA/Megatron-LM issue 1880; torch 1.13 to 2.6",
    ),
    row(
        "mpirun_exit", AFTER, Reason.UNKNOWN,
        r"noticed that process rank (?P<rank>[0-9]{1,7}) with PID (?P<pid>[0-9]{1,10}) on node "
        r"(?P<host>[\w.\-]{1,128}) exited on signal (?P<signal>[0-9]{1,3})",
        "NVIDIA/nccl-tests issue 218 (Open MPI), NVIDIA/nccl issue 1419 (prterun)",
    ),
    row(
        "mpirun_failed", AFTER, Reason.UNKNOWN,
        r"^mpirun detected that one or more processes exited with non-zero status",
        "NVIDIA/nccl-tests issue 294",
    ),
    row(
        "slurm_time_limit", END, Reason.ENDED, r"CANCELLED AT \S+ DUE TO (?:TIME LIMIT|PREEMPTION)",
        "ZettaAI/zetta_utils issue 671",
    ),
    row(
        "slurm_node_failed", OWN, Reason.HOST_LOST,
        r"DUE TO NODE (?P<host>[\w.\-]{1,128}) FAILURE"
        r"|srun: error: Node failure on (?P<host2>[\w.\-]{1,128})",
        "src/srun and src/slurmd of Slurm 23.11",
    ),
    row(
        "slurm_cancelled", END, Reason.ENDED,
        r"slurmstepd: error: \*\*\* (?:JOB|STEP) .*CANCELLED AT",
        "hafs-community/HAFS issue 101",
    ),
    row(
        "slurm_step_ends", END, Reason.ENDED, r"^srun: (?:Terminating job step|Job step aborted)",
        "hafs-community/HAFS issue 101, ZettaAI/zetta_utils issue 671",
    ),
    row(
        "slurm_task", AFTER, Reason.UNKNOWN,
        r"srun: error: (?P<host>[\w.\-]{1,128}): tasks? (?P<tasks>[0-9,\-]{1,64}): "
        r"(?P<what>.{1,80})",
        "nextflow-io/nextflow issue 5932, hafs-community/HAFS issue 101",
    ),
    # Processes and the kernel
    row(
        "segfault", OWN, Reason.PROGRAM,
        r"Caught signal (?:7|8|11) \(|Signal: (?:Segmentation fault|Bus error)"
        r"|Fatal Python error: (?:Segmentation fault|Bus error)"
        r"|^(?:Segmentation fault|Bus error)\b",
        "NVIDIA/nccl issue 1419 (UCX); Python's faulthandler; Open MPI; bash",
    ),
    row(
        "oom_killer", OWN, Reason.HOST_MEMORY,
        r"[Oo]ut of memory: Killed process (?P<pid>[0-9]{1,10}) \((?P<what>[^)]{0,32})\)",
        "mm/oom_kill.c of Linux 5.4 to 6.8",
    ),
    row(
        "xid", OWN, Reason.GPU_ERROR,
        r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-f:.]{4,16})\): (?P<status>[0-9]{1,3})",
        "NVIDIA/nvidia-docker issue 1553, NVIDIA/open-gpu-kernel-modules issue 1150",
        is_proof=False,
    ),
    row(
        "sxid", OWN, Reason.GPU_ERROR,
        r"SXid \(PCI:(?P<bus>[0-9a-f:.]{4,16})\): (?P<status>[0-9]{1,6}), Fatal",
        "NVIDIA, Fabric Manager user guide, appendix D", is_proof=False,
    ),
    row(
        "gpu_memory", OWN, Reason.GPU_MEMORY,
        r"(?:CUDA|HIP) out of memory|OutOfMemoryError|CUDA error: out of memory",
        RECORDED, is_proof=False,
    ),
)  # fmt: skip
"""The first row that fits a line is taken."""

IB_STATUS = {
    1: "local length error",
    2: "local queue pair operation error",
    4: "local protection error",
    5: "work request flushed: an earlier error has closed the queue pair",
    6: "memory window bind error",
    9: "remote invalid request",
    10: "remote access error",
    11: "remote operation error",
    12: "transport retry counter exceeded: the peer did not acknowledge",
    13: "receiver-not-ready retries exceeded: the peer posted no buffer",
    22: "fatal error of the device",
}
"""ibv_wc_status of rdma-core's verbs.h."""

XIDS_OF_GPU = frozenset(
    {46, 48, 62, 64, 74, 79, 92, 94, 95, 109, 110, 119, 120, 136, 140, 143, 145, 149, 155, 156, 158}
)
"""Xids of a GPU, its memory or its links, by NVIDIA's catalogue. Others follow from these (45), are
the program's (13, 31, 43) or harmless (63)."""

SIGNALS = {
    4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM",
}  # fmt: skip
KILLED, CRASHED = 9, (4, 7, 8, 11)

PEER_ERRORS = re.compile(
    r"NCCL|nccl|DistBackendError|DistStoreError|DistNetworkError|Gloo|gloo|TCPStore|[Ss]ocket"
    r"|[Cc]onnection|Broken pipe|[Pp]eer|[Tt]imed? ?out|Timeout|store->get|rendezvous|Rendezvous"
    r"|by signal: Terminated|SIGTERM|exited unexpectedly|^EOFError|CancelledError|ray\.exceptions"
)
"""Exceptions with such a text follow from another process, or from the launcher that ends all after
the first failure (a data loader's worker that was terminated): they accuse no process."""
CUDA_ERRORS = re.compile(
    r"CUDA (?:driver )?error|cuda runtime error|AcceleratorError|CUBLAS_|CUDNN_|cudaError"
    r"|device-side assert"
)
"""Exceptions that a GPU reports: they are also what ranks print whose communicator was aborted
(own recording: illegal memory access on seven ranks of eight of which one was killed)."""
GPU_BROKEN = re.compile(r"uncorrectable ECC|fallen off the bus|unspecified hardware|NVLink error")
NO_FAILURE = re.compile(r"^(?:SystemExit|KeyboardInterrupt|\S*ChildFailedError|StopIteration)\b")

MARKS = (
    b"Traceback (most recent", b"Watchdog caught", b"async exception", b"dump signal",
    b"Heartbeat monitor timed", b"watchdog got stuck", b"watchdog thread terminated",
    b"have failed or timed out", b"entire process down", b'"should dump" flag',
    b"failed on SocketImpl", b"exception dump flag", b"got signal: ", b"KeyboardInterrupt",
    b"Got completion", b"completed with error", b"Connection closed by remote", b"Call to ",
    b"Error", b"ncclInvalid", b"NCCL error", b"NCCL failure", b"unhandled cuda", b"exitcode: ",
    b"noticed that process", b"mpirun detected", b"CANCELLED AT", b"Node failure", b"FAILURE",
    b"srun: ", b"Caught signal", b"Signal: ", b"Fatal Python error", b"Segmentation fault",
    b"Bus error", b"Killed process", b"NVRM: Xid", b"SXid", b"out of memory", b"Root Cause",
    b"but didn't join", b"Bootstrap", b"; OOB ", b"NET/Socket : Using", b"My EFA addr", b"] Rank ",
)  # fmt: skip
"""What any line has that is looked at closely: most of a log is none of it. Texts and no pattern:
to search for each takes a fifth of the time."""


def marks_in(text: bytes) -> tuple[bytes, ...]:
    return tuple(mark for mark in MARKS if mark in text)


def find_words(text: str) -> tuple[Words, re.Match[str]] | None:
    for words in TABLE:
        if match := words.pattern.search(text):
            return words, match
    return None


def of_signal(code: int) -> tuple[Role, Reason]:
    """What an exit status shows that a launcher reports: negative, or the number of a signal.

    Launchers end the others with SIGTERM, and PyTorch's watchdog ends its process with SIGABRT.
    """
    number = -code
    if number == KILLED:
        return Role.OWN, Reason.KILLED
    if number in CRASHED:
        return Role.OWN, Reason.PROGRAM
    return Role.AFTER, Reason.UNKNOWN
