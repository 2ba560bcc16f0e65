"""`fabricscope bench-pair HOST HOST`: measure between two suspects, and keep the result.

It fills links and GPUs for some seconds: it refuses while a job's ranks run on one of the hosts,
or while no service says that none does, unless it is told otherwise.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

import msgspec

from api.remote.bench_pair.ends import (
    BYTES_MAX,
    GPUS_MAX,
    IPERF_BYTES_MAX,
    SECONDS_MAX,
    End,
    Result,
    Tool,
    Wanted,
    ask,
    check_name,
    checked,
    choose,
    end_words,
    measure,
    started,
)
from api.remote.cases.cli import by_of
from api.remote.client import Client, ServiceError, Target
from api.remote.incidents.show import path_of
from collector.contract.client_flags import add_client_flags
from collector.contract.errors import HostError, ParseError, SettingsError
from collector.doors.host import Host

EXIT_FAILED = 1
SECONDS_DEFAULT = 5
BYTES_DEFAULT = {
    Tool.BANDWIDTH: 65_536,
    Tool.LATENCY: 2,
    Tool.TCP: 131_072,
    Tool.NCCL: 256 << 20,
}
SERVER, CLIENT = "server", "client"
JOBS_SHOWN = 3

Answer = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "host",
        nargs=2,
        metavar="HOST[=ADDRESS]",
        help="a host, and the address of its rail where its name is not that",
    )
    parser.add_argument(
        "--tool",
        choices=[each.value for each in Tool],
        default=None,
        help="bandwidth: ib_write_bw, latency: ib_send_lat, tcp: iperf3, nccl: all_reduce_perf by "
        "mpirun; default: bandwidth where both hosts have an RDMA device (they are asked), or one "
        "is named, or with --only; else tcp",
    )
    parser.add_argument(
        "--start",
        default="",
        metavar="COMMAND",
        help="starts a program on a host whose name follows, as 'ssh -o BatchMode=yes'",
    )
    parser.add_argument(
        "--only",
        choices=(SERVER, CLIENT),
        default="",
        help="run one end here, and call this on the other host for the other end: the first HOST "
        "is the server, the second the client",
    )
    parser.add_argument("--device", default="", metavar="NAME", help="RDMA device, as mlx5_0")
    parser.add_argument(
        "--seconds",
        type=int,
        default=SECONDS_DEFAULT,
        metavar="N",
        help=f"how long to measure bandwidth each way (default %(default)s, at most {SECONDS_MAX})",
    )
    parser.add_argument(
        "--bytes", type=int, default=0, metavar="N", help="of a message (default: by the tool)"
    )
    parser.add_argument(
        "--gpus", type=int, default=1, metavar="N", help="of each host, with --tool nccl"
    )
    parser.add_argument(
        "--beside-jobs", action="store_true", help="also where jobs run: they will be slower"
    )
    parser.add_argument("--incident", default="", metavar="ID", help="note the result there")
    parser.add_argument("--by", default="", metavar="NAME", help="your name for that record")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_client_flags(parser)
    parser.epilog = (
        "Measures both ways, one after the other; with --only, one way. This command has no access "
        "to hosts of its own: --start names yours. Exit status: 0 measured (and noted), 1 not, 2 "
        "wrong usage."
    )


def run(arguments: argparse.Namespace) -> int:
    one, other = (End.parse(text) for text in arguments.host)
    wanted = wanted_of(arguments, Tool(arguments.tool or Tool.BANDWIDTH))
    target = Target.of(arguments, "operate" if arguments.incident else "read")
    client = Client(target, "bench-pair", for_terminal=True)
    try:
        if not arguments.beside_jobs:
            refuse_beside_jobs(client, (one, other))
        if not (arguments.tool or arguments.device or arguments.only):
            tool, why = chosen(wanted, one, other)
            print(why, file=sys.stderr)
            wanted = wanted_of(arguments, tool)
        results = measured(arguments.only, wanted, one, other)
        show(results, is_json=arguments.json)
        if arguments.incident and results:
            keep(client, arguments, results)
    except (ServiceError, HostError, ParseError, BesideJobsError) as error:
        print(f"fabricscope: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        client.close()
    return 0


class BesideJobsError(Exception):
    """A job may run on one of the hosts."""


def wanted_of(arguments: argparse.Namespace, tool: Tool) -> Wanted:
    size = arguments.bytes or BYTES_DEFAULT[tool]
    for name, value, most in (
        ("--seconds", arguments.seconds, SECONDS_MAX),
        ("--bytes", size, IPERF_BYTES_MAX if tool is Tool.TCP else BYTES_MAX),
        ("--gpus", arguments.gpus, GPUS_MAX),
    ):
        if not 1 <= value <= most:
            raise SettingsError(f"{name} {value}: from 1 to {most}")
    if arguments.device:
        check_name(arguments.device, "device")
        if tool is Tool.TCP:
            raise SettingsError(
                "--device: with --tool tcp the hosts' addresses say which interface"
            )
    try:
        start = tuple(shlex.split(arguments.start))
    except ValueError as error:
        raise SettingsError(f"--start {arguments.start!r}: {error}") from error
    if tool is not Tool.NCCL and bool(start) == bool(arguments.only):
        raise SettingsError(
            "give --start COMMAND, which starts both ends (as 'ssh -o BatchMode=yes'), or "
            "--only server on the first host and --only client on the second"
        )
    if tool is Tool.NCCL and (start or arguments.only):
        raise SettingsError("--tool nccl: mpirun starts both ends; leave out --start and --only")
    return Wanted(
        tool=tool,
        seconds=arguments.seconds,
        bytes=size,
        device=arguments.device,
        gpus=arguments.gpus,
        start=start,
    )


def refuse_beside_jobs(client: Client, ends: tuple[End, End]) -> None:
    """BesideJobsError where a job runs; ServiceError where no service says that none does."""
    for end in ends:
        try:
            found = client.get("/v1/jobs", Answer, state="running", host=end.host, limit=JOBS_SHOWN)
        except ServiceError as error:
            words = f"cannot tell whether a job runs on {end.host}; --beside-jobs does not ask"
            raise BesideJobsError(f"{error}; {words}") from error
        if jobs := found["items"]:
            names = ", ".join(str(job["id"]) for job in jobs)
            words = f"on {end.host} runs {names}: measuring slows it down"
            raise BesideJobsError(f"{words}; --beside-jobs does it nevertheless")


def chosen(wanted: Wanted, one: End, other: End) -> tuple[Tool, str]:
    host = Host()
    try:
        return choose(host.run, wanted, (one, other))
    finally:
        host.close()


def measured(only: str, wanted: Wanted, one: End, other: End) -> list[Result]:
    """One result for each way; none on the host that is the server alone."""
    host = Host()
    try:
        if only == SERVER:
            checked(host.run(started(wanted, "", end_words(wanted)), wanted.limit_s), SERVER)
            return []
        if only == CLIENT:
            return [ask(host.run, wanted, one, other)]
        ways = [(one, other)] if wanted.tool is Tool.NCCL else [(one, other), (other, one)]
        return [measure(host.run, wanted, server, client) for server, client in ways]
    finally:
        host.close()


def show(results: list[Result], *, is_json: bool) -> None:
    if is_json:
        print(msgspec.json.format(msgspec.json.encode(results), indent=2).decode())
        return
    for result in results:
        print(result.words)


def keep(client: Client, arguments: argparse.Namespace, results: list[Result]) -> None:
    """As a note of the incident, which its page and its Markdown show with who measured."""
    note = "Measured: " + "; ".join(result.words for result in results) + "."
    body = {"does": "note", "by": by_of(arguments), "note": note}
    path = path_of(arguments.incident, "/work")
    client.send("POST", path, msgspec.json.encode(body), Answer)
    print(f"noted in {arguments.incident}", file=sys.stderr)
