"""Lines of dying jobs: what each shape says, about whom, and when; and what hostile lines cost."""
# ruff: noqa: E501 - lines of other programs stand as they are

import time

import pytest

from collector.contract.model import Event
from collector.contract.units import NS
from collector.contract.verdict import Reason
from collector.parsing import last_words
from collector.parsing.dying_words import TABLE, Role, Words, marks_in
from collector.parsing.last_words import HOST_ADDRESS, LAST_WORDS, LastWords

FILE_NS = 1_800_000_000 * NS
"""2027-01-15: stamps without a year that are later in the year are of 2026."""

EXAMPLES = {
    "collective_timeout": "[rank3]:[E1119 13:21:12.512781555 ProcessGroupNCCL.cpp:616] [Rank 3] "
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=1, "
    "NumelOut=1, Timeout(ms)=1800000) ran for 1800000 milliseconds before timing out.",
    "async_exception": "[rank1]:[E1117 18:21:22.074582250 ProcessGroupNCCL.cpp:612] [Rank 1] "
    "Collective WorkNCCL(SeqNum=43, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=8000) "
    "raised the following async exception: NCCL error: remote process exited, NCCL version 2.28.9",
    "dump_signal": "[rank0]:[E1117 18:21:23.759348406 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0"
    " Rank 0] Received a dump signal due to a collective timeout from  rank 1 and we will try",
    "watchdog_stuck": "[rank2]:[E704 13:48:58.260494728 ProcessGroupNCCL.cpp:1746] [PG ID 0 Rank 2] "
    "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress",
    "taken_down": "[E ProcessGroupNCCL.cpp:460] To avoid data inconsistency, we are taking the "
    "entire process down.",
    "store_lost": '[rank8]:[W318 10:00:41.929037914 ProcessGroupNCCL.cpp:1771] Failed to check the '
    '"should dump" flag on TCPStore, (maybe TCPStore server has shut down too early)',
    "interrupted": "torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got "
    "signal: 15",
    "ib_completion": "node-2:5776:5902 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion"
    " from peer 10.2.0.5<33092> with error 12, opcode 0, len 0, vendor err 129 (Recv)",
    "ofi_completion": "[2026-01-01 12:08:32] pod-0:194:710 [0] int cm_req_handle_error_entry(nccl_net"
    "_ofi_context_t*, fid_cq*, fi_cq_err_entry*, uint16_t):46 NCCL WARN NET/OFI Request 0x7f45 "
    "completed with error. RC: 103. Error: 4126 (Unresponsive receiver (reachable by EFA device but "
    "handshake failed) My EFA addr: fi_addr_efa://[fe80::c55]:0:1 My host id: i-07 Peer EFA addr: "
    "fi_addr_efa://[fe80::454]:0:8 Peer host id: N/A). Completed length: 0",
    "peer_closed": "[2026-11-17 18:25:07] node4:1:2 [0] misc/socket.cc:72 NCCL WARN socketProgress: "
    "Connection closed by remote peer node5.cluster<46091>",
    "nccl_cuda": "node1: Test failure: ncclUnhandledCudaError: Call to CUDA function failed.",
    "nccl_usage": "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
    "nccl_failure": "ncclRemoteError: A call failed possibly due to a network error or a remote "
    "process exiting prematurely.",
    "elastic_exit": "[2023-10-13 17:40:02,544] torch.distributed.elastic.multiprocessing.api: "
    "[ERROR] failed (exitcode: -9) local_rank: 0 (pid: 62498) of binary: /usr/bin/python",
    "mpirun_exit": "prterun noticed that process rank 48 with PID 613162 on node gpu-node07 exited "
    "on signal 11 (Segmentation fault).",
    "mpirun_failed": "mpirun detected that one or more processes exited with non-zero status, thus",
    "slurm_time_limit": "slurmstepd: error: *** JOB 494583 ON n1 CANCELLED AT 2024-04-20T09:09:37 "
    "DUE TO TIME LIMIT ***",
    "slurm_node_failed": "srun: error: Node failure on node7",
    "slurm_cancelled": "slurmstepd: error: *** STEP 349.0 ON n-01 CANCELLED AT 2021-10-27T19:35:36 ***",
    "slurm_step_ends": "srun: Job step aborted: Waiting up to 47 seconds for job step to finish.",
    "slurm_task": "srun: error: node3: task 5: Killed",
    "segfault": "[gpu-node09:332629:0:332629] Caught signal 11 (Segmentation fault: address not mapped)",
    "oom_killer": "[  12.3] Memory cgroup out of memory: Killed process 2630 (python3) total-vm:9kB",
    "xid": "[1084456.0] NVRM: Xid (PCI:0000:09:00): 79, pid=0, GPU has fallen off the bus.",
    "sxid": "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "gpu_memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
}  # fmt: skip


def heard(*lines: str, name: str = "job.log") -> list[Event]:
    words = LastWords(name, FILE_NS)
    found: list[Event] = []
    for number, line in enumerate(lines, 1):
        found += words.feed(number, line.encode())
    return [event for event in found if event.kind == LAST_WORDS]


def only(*lines: str) -> Event:
    (event,) = heard(*lines)
    return event


def test_every_row_of_the_table_has_an_example_and_a_source() -> None:
    assert sorted(EXAMPLES) == sorted(row.name for row in TABLE)
    assert all(row.source for row in TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_each_example_is_read_as_its_row(row: Words) -> None:
    event = only(EXAMPLES[row.name])
    assert event.attributes["words"] == row.name
    assert marks_in(EXAMPLES[row.name].encode()), "a block with this line would be passed over"


@pytest.mark.parametrize(
    ("name", "role", "reason"),
    [
        ("collective_timeout", Role.PEER, Reason.TIMED_OUT),
        ("dump_signal", Role.AFTER, Reason.TIMED_OUT),
        ("ib_completion", Role.PEER, Reason.CONNECTION_LOST),
        ("elastic_exit", Role.OWN, Reason.KILLED),
        ("mpirun_exit", Role.OWN, Reason.PROGRAM),
        ("slurm_task", Role.OWN, Reason.KILLED),
        ("slurm_time_limit", Role.END, Reason.ENDED),
        ("oom_killer", Role.OWN, Reason.HOST_MEMORY),
        ("xid", Role.OWN, Reason.GPU_ERROR),
    ],
)
def test_who_fails_and_who_complains_are_told_apart(name: str, role: Role, reason: Reason) -> None:
    event = only(EXAMPLES[name])
    assert (event.attributes["role"], event.attributes["reason"]) == (role, reason)


def test_whom_a_line_is_about() -> None:
    assert only(EXAMPLES["collective_timeout"]).labels == {"rank": "3"}
    assert only(EXAMPLES["ib_completion"]).labels == {"host": "node-2", "pid": "5776"}
    assert only(EXAMPLES["elastic_exit"]).labels == {"local_rank": "0", "pid": "62498"}
    told = {"rank": "48", "host": "gpu-node07", "pid": "613162"}
    assert only(EXAMPLES["mpirun_exit"]).labels == told
    assert only(EXAMPLES["slurm_task"]).labels == {"host": "node3"}
    assert only(EXAMPLES["slurm_node_failed"]).labels == {"host": "node7"}


def test_a_peer_is_named_by_its_address_and_a_status_has_its_meaning() -> None:
    event = only(EXAMPLES["ib_completion"])
    assert event.attributes["peer"] == "10.2.0.5"
    assert "transport retry counter exceeded" in event.message
    newer = EXAMPLES["ib_completion"].replace("error 12,", "status=13")
    assert "posted no buffer" in only(newer).message
    assert only(EXAMPLES["ofi_completion"]).attributes["peer"] == "fe80::454"


def test_a_dump_signal_accuses_nobody() -> None:
    """Of a killed rank's peers, it names the one that noticed first (own recording)."""
    event = only(EXAMPLES["dump_signal"])
    assert event.labels == {"rank": "0"}
    assert "peer" not in event.attributes


def test_times_are_whole_seconds_of_the_year_before_the_file() -> None:
    event = only(EXAMPLES["collective_timeout"])
    assert event.time_ns == 1_795_094_472 * NS  # 2026-11-19 13:21:12 UTC
    assert event.attributes["timed"] == "1"
    assert "timed" not in only(EXAMPLES["gpu_memory"]).attributes


def test_an_uncaught_exception_is_its_ranks_with_the_place_in_the_program() -> None:
    event = only(
        "[rank4]: Traceback (most recent call last):",
        '[rank4]:   File "/job/train.py", line 143, in step',
        '[rank4]:   File "/venv/lib/python3.12/site-packages/x/y.py", line 9, in load',
        "[rank4]:     raise KeyError(name)",
        "[rank4]: KeyError: 'labels'",
    )
    assert event.labels == {"rank": "4"}
    assert event.attributes["place"] == "/job/train.py:143"
    assert (event.attributes["role"], event.attributes["proof"]) == ("own", "1")


def test_an_exception_about_a_peer_is_a_complaint() -> None:
    for text in (
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:3699, remote process exited",
        "RuntimeError: [pair.cc:525] Connection closed by peer [10.0.0.7]:2041",
        "torch.distributed.DistStoreError: wait timeout after 600000ms",
        "RuntimeError: DataLoader worker (pid 12) is killed by signal: Terminated.",
        "EOFError",
    ):
        event = only("[rank0]: Traceback (most recent call last):", f"[rank0]: {text}")
        assert event.attributes["role"] == "peer"


def test_a_traceback_of_nobody_proves_nothing() -> None:
    """A program may print what it has caught; only PyTorch's hook puts the rank before it."""
    event = only("Traceback (most recent call last):", '  File "a.py", line 1, in f', "OSError: x")
    assert "proof" not in event.attributes
    assert event.labels == {}


def test_lines_without_a_prefix_are_the_only_ranks_and_of_several_nobodys() -> None:
    closed = "socketProgress: Connection closed by remote peer 10.0.0.2<5>"
    alone = heard(EXAMPLES["async_exception"], closed)
    assert alone[1].labels == {"rank": "1"}
    both = heard(EXAMPLES["async_exception"], EXAMPLES["collective_timeout"], closed)
    assert both[2].labels == {}


def test_interleaved_tracebacks_keep_their_ranks() -> None:
    found = heard(
        "[rank0]: Traceback (most recent call last):",
        "[rank1]: Traceback (most recent call last):",
        '[rank0]:   File "/job/a.py", line 1, in f',
        '[rank1]:   File "/job/b.py", line 2, in g',
        "[rank1]: ValueError: one",
        "[rank0]: KeyError: 'zero'",
    )
    places = [(one.labels["rank"], one.attributes["place"]) for one in found]
    assert places == [("1", "/job/b.py:2"), ("0", "/job/a.py:1")]


def test_torchruns_root_cause_has_rank_host_and_signal() -> None:
    event = only(
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-03-25_20:57:27",
        "  host      : node3",
        "  rank      : 29 (local_rank: 5)",
        "  exitcode  : -9 (pid: 2630)",
        "  error_file: <N/A>",
        "  traceback : Signal 9 (SIGKILL) received by PID 2630",
    )
    assert event.labels == {"rank": "29", "host": "node3", "pid": "2630"}
    assert (event.attributes["role"], event.attributes["reason"]) == ("own", "killed")
    assert event.time_ns == 1_774_472_247 * NS


@pytest.mark.parametrize(
    ("code", "role"), [(-6, "after"), (-15, "after"), (1, "after"), (-11, "own")]
)
def test_signals_of_watchdogs_and_launchers_accuse_nobody(code: int, role: str) -> None:
    line = EXAMPLES["elastic_exit"].replace("-9", str(code))
    assert only(line).attributes["role"] == role


def test_who_is_killed_after_the_step_was_ended_was_not_the_first() -> None:
    first, end, second = heard(
        "srun: error: node3: task 5: Killed",
        "srun: Terminating job step 3495450.0",
        "srun: error: node4: tasks 8-15: Killed",
    )
    assert [one.attributes["role"] for one in (first, second)] == ["own", "after"]
    # And the end is what follows a failure, not the cause.
    assert end.attributes["role"] == "after"
    assert only(EXAMPLES["slurm_step_ends"]).attributes["role"] == "end"


def test_a_desync_report_is_used_where_its_numbers_are_the_jobs() -> None:
    report = (
        "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:",
        "\t   - [3] finished collective #50, but didn't join collective #51 (count from 1)",
    )
    stamp = "[rank0]:[E1117 18:17:01.243103135 ProcessGroupNCCL.cpp:2495]"
    assert only(f"{stamp} Rank 0", *report).attributes["absent"] == "3"
    # Rank 0 of a smaller group is rank 2 of the job, and so is any other number.
    assert heard(f"{stamp.replace('rank0', 'rank2')} Rank 0", *report) == []


def test_xids_of_the_program_or_that_follow_accuse_no_gpu() -> None:
    for xid in (13, 31, 43, 45, 63):
        assert only(EXAMPLES["xid"].replace(" 79,", f" {xid},")).attributes["role"] == "after"


def test_a_hosts_addresses_are_read_and_loopback_is_nobodys() -> None:
    words = LastWords("a", FILE_NS)
    lines = (
        "node-2:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.2.0.4<0>",
        "node-2:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.2.0.4<0>",
        "node-3:1:2 [0] NCCL INFO Bootstrap: Using lo:127.0.0.1<0>",
        EXAMPLES["ofi_completion"],
    )
    found = [e for n, line in enumerate(lines) for e in words.feed(n, line.encode())]
    told = [
        (one.labels["host"], one.attributes["address"]) for one in found if one.kind == HOST_ADDRESS
    ]
    assert told == [("node-2", "10.2.0.4"), ("pod-0", "fe80::c55")]


# --- bounds --------------------------------------------------------------------------------------


def test_repeats_are_one_event_and_all_are_bounded() -> None:
    closed = "socketProgress: Connection closed by remote peer 10.0.0.2<{}>"
    assert len(heard(*(closed.format(port) for port in range(1000)))) == 1
    many = (f"[rank{n}]: ncclRemoteError: A call failed" for n in range(3 * last_words.WORDS_MAX))
    assert len(heard(*many)) == last_words.WORDS_MAX


def test_a_traceback_without_an_end_is_given_up() -> None:
    words = LastWords("a", FILE_NS)
    list(words.feed(1, b"Traceback (most recent call last):"))
    for number in range(2, last_words.TRACEBACK_LINES_MAX + 10):
        list(words.feed(number, b"  File"))
    assert not words.wants(b"an ordinary line")


def test_ordinary_lines_are_not_looked_at_closely() -> None:
    words = LastWords("a", FILE_NS)
    block = b"step 100 loss 2.31 lr 1e-4 tokens/s 120000\n" * 1500
    assert not words.wants(block)
    began = time.process_time()
    for _ in range(100):
        words.wants(block)
    # 6.5 MB: a log of gigabytes must not take hours. Measured: 0.1 s.
    assert time.process_time() - began < 5
