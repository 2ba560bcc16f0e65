"""Both ends of a measurement: their words, how they are started, and what they printed.

Programs start on this machine. Where an end is another host, the operator's own command (`ssh …`)
starts them there, and `timeout` on that host ends them if this command is gone. Nothing here knows
a password or a key.
"""

from __future__ import annotations

import enum
import re
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from collector.contract.errors import HostError, ParseError, SettingsError
from collector.doors.commands import Output
from collector.formats.nccl_tests import parse_row
from collector.parsing.iperf import parse_iperf
from collector.parsing.measured import Measured
from collector.parsing.perftest import parse_perftest

PORT: Final = 18_515
"""perftest's own, and iperf3's here, so that one hole in a firewall does for both."""
START_SECONDS: Final = 15.0
"""For ssh, the program and its queue pairs, beside the time that it measures."""
RETRY_SECONDS: Final = 1.0
"""Between two tries of a client whose server does not listen yet."""
SECONDS_MAX, BYTES_MAX, GPUS_MAX = 60, 1 << 30, 16
TCP_STREAMS: Final = 4
"""One rarely fills a fast link, and takes one of several ways."""
TCP_CONNECT_SECONDS: Final = 5
IPERF_BYTES_MAX: Final = 1 << 20
"""iperf3's own bound of a write (MAX_BLOCKSIZE)."""
LATENCY_MESSAGES: Final = 10_000
"""20 ms on a good link; bounded by time where it is bad."""
NCCL_ROUNDS: Final = 20
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,252}")
"""Of hosts, addresses and devices: no option of a program, and no sign that a shell changes."""

RDMA_CLASS: Final = "/sys/class/infiniband"
NOT_THERE: Final = b"No such file"
"""What `ls` says where the kernel has no RDMA at all."""
NO_DEVICE: Final = "Unable to find the Infiniband/RoCE device"
"""perftest's words for no RDMA device, or none of the name that was asked for."""
NO_DEVICE_MEANS: Final = (
    ": that host has no such RDMA device, or its driver is not loaded (`ls /sys/class/infiniband` "
    "there shows those that are); --tool tcp measures TCP instead"
)

Run = Callable[[Sequence[str], float], Output]


class Tool(enum.StrEnum):
    """What measures."""

    BANDWIDTH = "bandwidth"
    LATENCY = "latency"
    TCP = "tcp"
    NCCL = "nccl"


class End(msgspec.Struct, frozen=True):
    """A host, and where the other end reaches it."""

    host: str
    address: str

    @classmethod
    def parse(cls, text: str) -> End:
        """`HOST`, or `HOST=ADDRESS` where the fabric has another name than the host."""
        host, _, address = text.partition("=")
        for name in (host, address or host):
            check_name(name, "host")
        return cls(host, address or host)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    tool: Tool
    seconds: int
    bytes: int
    device: str = ""
    gpus: int = 1
    """Of each host, with nccl."""
    start: tuple[str, ...] = ()
    """The words before a host's name that start a program there; none: both ends are here."""

    @property
    def limit_s(self) -> float:
        return self.seconds + START_SECONDS


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One way: the client sends, the server takes."""

    tool: Tool
    client: str
    server: str
    measured: Measured

    @property
    def words(self) -> str:
        """For a person, and for the incident's record."""
        found = self.measured
        way = f"from {self.client} to {self.server}"
        if found.bits_per_second is not None:
            what = f"{found.bits_per_second / 1e9:.4g} Gb/s"
            if found.sent_again is not None:
                what += f" (TCP sent {found.sent_again} segments again)"
        else:
            typical, most = (found.seconds_typical or 0.0), (found.seconds_99 or 0.0)
            what = f"{typical * 1e6:.4g} µs typical, {most * 1e6:.4g} µs for 99 of 100"
        if self.tool is Tool.NCCL:
            way = f"between {self.client} and {self.server} (bus bandwidth of all_reduce)"
        return f"{PROGRAMS[self.tool]}, {found.bytes} bytes: {what} {way}"


PROGRAMS: Final = {
    Tool.BANDWIDTH: "ib_write_bw",
    Tool.LATENCY: "ib_send_lat",
    Tool.TCP: "iperf3",
    Tool.NCCL: "all_reduce_perf",
}


def check_name(text: str, what: str) -> None:
    if not NAME.fullmatch(text):
        raise SettingsError(f"{text[:80]!r} is no name of a {what}")


def perftest_words(wanted: Wanted, server: str = "") -> list[str]:
    """The program's words; ``server``: the address that a client goes to."""
    words = [PROGRAMS[wanted.tool], "-F", "-p", str(PORT), "-s", str(wanted.bytes)]
    if wanted.device:
        words += ["-d", wanted.device]
    if wanted.tool is Tool.BANDWIDTH:
        words += ["--report_gbits", "-D", str(wanted.seconds)]
    else:
        words += ["-n", str(LATENCY_MESSAGES)]
    return [*words, *([server] if server else [])]


def iperf_words(wanted: Wanted, server: str = "") -> list[str]:
    """A server for one client; or the client, whose report is JSON."""
    words = [PROGRAMS[Tool.TCP], "-p", str(PORT)]
    if not server:
        return [*words, "-s", "-1"]
    words += ["-c", server, "-t", str(wanted.seconds), "-l", str(wanted.bytes), "-J"]
    return [*words, "-P", str(TCP_STREAMS), "--connect-timeout", str(TCP_CONNECT_SECONDS * 1000)]


def end_words(wanted: Wanted, server: str = "") -> list[str]:
    """One end; ``server``: the address that a client goes to."""
    return (iperf_words if wanted.tool is Tool.TCP else perftest_words)(wanted, server)


def nccl_words(wanted: Wanted, one: End, other: End) -> list[str]:
    """`mpirun` starts both ends itself, from here."""
    ends = ",".join(f"{end.host}:{wanted.gpus}" for end in (one, other))
    ranks, size = str(2 * wanted.gpus), str(wanted.bytes)
    program = [PROGRAMS[Tool.NCCL], "-b", size, "-e", size, "-n", str(NCCL_ROUNDS), "-g", "1"]
    return ["mpirun", "-np", ranks, "-H", ends, *program]


def started(wanted: Wanted, host: str, words: Sequence[str]) -> list[str]:
    """As it is started: here, or there by the operator's command."""
    bounded = ["timeout", f"{wanted.limit_s:.0f}", *words]
    return [*wanted.start, host, shlex.join(bounded)] if wanted.start else bounded


def measure(run: Run, wanted: Wanted, server: End, client: End) -> Result:
    """Both ends. Raises HostError or ParseError with what the programs said."""
    if wanted.tool is Tool.NCCL:
        words = ["timeout", f"{wanted.limit_s:.0f}", *nccl_words(wanted, client, server)]
        found = parse_nccl(checked(run(words, wanted.limit_s), words[2]))
        return result_of(wanted, server, client, found)
    ended: list[Output | HostError] = []

    def serve() -> None:
        try:
            words = started(wanted, server.host, end_words(wanted))
            ended.append(run(words, wanted.limit_s))
        except HostError as error:
            ended.append(error)

    thread = threading.Thread(target=serve, name="bench-pair server", daemon=True)
    thread.start()
    try:
        return ask(run, wanted, server, client, is_over=lambda: bool(ended))
    except ParseError as error:
        thread.join(wanted.limit_s)
        said = complaint_of(ended[0]) if ended else "it did not end"
        raise ParseError("", f"{error}; the server's end: {said}") from error
    finally:
        thread.join(wanted.limit_s)


def ask(
    run: Run,
    wanted: Wanted,
    server: End,
    client: End,
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> Result:
    """The client's end: again and again until the server listens, its time is up, or it ended."""
    deadline = time.monotonic() + wanted.limit_s
    words = started(wanted, client.host, end_words(wanted, server.address))
    while True:
        output = run(words, wanted.limit_s)
        try:
            return result_of(wanted, server, client, parse_client(wanted.tool, output))
        except ParseError:
            if is_over() or time.monotonic() + RETRY_SECONDS >= deadline:
                raise
        threading.Event().wait(RETRY_SECONDS)


def result_of(wanted: Wanted, server: End, client: End, found: Measured) -> Result:
    return Result(tool=wanted.tool, client=client.host, server=server.host, measured=found)


def parse_client(tool: Tool, output: Output) -> Measured:
    """iperf3 says inside of its report what failed; the others say it by their status."""
    if tool is Tool.TCP and not output.is_cut and output.text.startswith(b"{"):
        return parse_iperf(output.text)
    text = checked(output, "the client's end")
    return parse_iperf(text) if tool is Tool.TCP else parse_perftest(text)


def checked(output: Output, what: str) -> bytes:
    if output.status or output.is_cut:
        raise ParseError("", f"{what}: {complaint_of(output)}")
    return output.text


def complaint_of(output: Output | HostError) -> str:
    """The last that a program said, for a person."""
    if isinstance(output, HostError):
        return str(output)
    text = (output.complaints or output.text).decode("utf-8", errors="replace")
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip(" -")), "")
    means = NO_DEVICE_MEANS if NO_DEVICE in last else ""
    return f"status {output.status}: {last[:200] or 'it said nothing'}{means}"


def has_rdma(run: Run, wanted: Wanted, end: End) -> bool:
    """Whether a host has an RDMA device. Raises ParseError where that cannot be told."""
    output = run(started(wanted, end.host, ["ls", RDMA_CLASS]), wanted.limit_s)
    if not output.status and not output.is_cut:
        return bool(output.text.split())
    if NOT_THERE in output.complaints and RDMA_CLASS.encode() in output.complaints:
        return False
    why = f"cannot tell whether {end.host} has an RDMA device: {complaint_of(output)}"
    raise ParseError("", f"{why}; --tool says what to measure with")


def choose(run: Run, wanted: Wanted, ends: Sequence[End]) -> tuple[Tool, str]:
    """What measures where nobody said it, and why: RDMA where both have it, as training uses it."""
    without = [end.host for end in ends if not has_rdma(run, wanted, end)]
    if not without:
        return Tool.BANDWIDTH, f"both hosts have RDMA devices: {PROGRAMS[Tool.BANDWIDTH]}"
    hosts = " and ".join(without)
    return Tool.TCP, f"no RDMA device on {hosts}: TCP by {PROGRAMS[Tool.TCP]}"


def parse_nccl(text: bytes) -> Measured:
    """The last row of nccl-tests' table, out of place."""
    rows = [line.split() for line in text.decode("utf-8", errors="replace").splitlines()]
    for fields in reversed(rows):
        if fields and fields[0].isdigit():
            row = parse_row(fields)[0]
            return Measured(bytes=row.size, bits_per_second=(row.bus or 0.0) * 8e9)
    raise ParseError("", "all_reduce_perf printed no row of results")
