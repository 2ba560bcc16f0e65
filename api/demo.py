"""`fabricscope demo`: the service and an agent on this very host, in one command.

Both are the real programs, started as a user would start them, so that what the demo shows is
what an install does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx

from collector.contract.errors import FabricscopeError, SettingsError

READY_SECONDS = 60.0
"""How long the service may take to start: two seconds on an idle laptop."""
STOP_SECONDS = 15.0
"""How long the two programs may take to end before they are killed."""
FIRST_READ_SECONDS = 20.0
"""Sources read every five seconds, each at its own moment, and batches take one more."""
POLL_SECONDS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `demo`."""
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("var/demo"),
        metavar="DIR",
        help="folder for everything the demo writes (default var/demo)",
    )
    parser.add_argument("--port", type=int, default=9700, help="port on 127.0.0.1 (default 9700)")
    parser.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        help="let the agent read a captured tree instead of this host",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="N",
        help="end by itself after so long (default: when you press Ctrl-C)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Start both programs, show what they do, end them."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    port = free_port(arguments.port)
    url = f"http://127.0.0.1:{port}"
    data: Path = arguments.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    say(f"Fabricscope demo: everything it writes is in {data}")
    if port != arguments.port:
        say(f"Port {arguments.port} is taken; using {port}.")
    agent_flags = [
        "--service",
        url,
        "--spool",
        str(data / "agent"),
        "--listen",
        "",
        "--flush-seconds",
        "1",
    ]
    if arguments.root is not None:
        agent_flags += ["--root", str(arguments.root)]
    with (
        started(
            "serve",
            ["--data", str(data / "service"), "--listen", f"127.0.0.1:{port}"],
            data / "service.log",
        ) as service,
        httpx.Client(base_url=url, timeout=10) as client,
    ):
        say("Starting the service …")
        await_ready(client, service, data / "service.log")
        with started("agent", agent_flags, data / "agent.log") as agent:
            say("Starting an agent on this host …")
            host = await_host(client, agent, data / "agent.log")
            show(client, url, host)
            wait_for_end([service, agent], arguments.seconds)
            say("\nStopping both; the data stays where it is.")
    return 0


def say(line: str) -> None:
    """Tell the person in front of the terminal."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def free_port(wanted: int) -> int:
    """The wanted port, or another one if somebody has it."""
    for candidate in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", candidate))
                return int(probe.getsockname()[1])
    raise SettingsError("no port on 127.0.0.1 is free")


@contextlib.contextmanager
def started(verb: str, flags: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One of our own programs, ended when the block is."""
    program = "import sys; from collector.cli import main; sys.exit(main())"
    command = [sys.executable, "-P", "-c", program, verb, *flags]
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own program with our own arguments
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def await_ready(client: httpx.Client, service: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the service answers."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        check_alive(service, "service", log)
        with contextlib.suppress(httpx.HTTPError):
            if client.get("/readyz").status_code == httpx.codes.OK:
                return
        time.sleep(POLL_SECONDS)
    raise FabricscopeError(f"the service was not ready in {READY_SECONDS:.0f} s; see {log}")


def await_host(client: httpx.Client, agent: subprocess.Popen[bytes], log: Path) -> str:
    """Return the host's name when the service knows it and its network interfaces."""
    deadline = time.monotonic() + FIRST_READ_SECONDS
    host = ""
    while time.monotonic() < deadline:
        check_alive(agent, "agent", log)
        for found in client.get("/v1/hosts").json()["items"]:
            host = str(found["host"])
            if client.get(f"/v1/hosts/{quote(host, safe='')}").json()["devices"]:
                return host
        time.sleep(POLL_SECONDS)
    if not host:
        raise FabricscopeError(f"no sample arrived in {FIRST_READ_SECONDS:.0f} s; see {log}")
    return host


def check_alive(process: subprocess.Popen[bytes], name: str, log: Path) -> None:
    """Say why a program ended, if it did."""
    if process.poll() is not None:
        text = log.read_text("utf-8", "replace").strip()
        last = text.splitlines()[-1] if text else "it said nothing"
        raise FabricscopeError(f"the {name} ended ({process.returncode}): {last}; see {log}")


def show(client: httpx.Client, url: str, host: str) -> None:
    """What was found, and what to try."""
    detail = client.get(f"/v1/hosts/{quote(host, safe='')}").json()
    ports = client.get("/v1/ports", params={"host": host, "limit": 1000}).json()["items"]
    nics = [device["device"] for device in detail["devices"] if device["kind"] == "nic"]
    say(f"\n  {url}   is up and knows this host: {host}")
    say(f"  network interfaces: {', '.join(nics) or 'none'}")
    say(f"  RDMA ports:         {', '.join(port['id'] for port in ports) or 'none on this host'}")
    selector = quote('fabric_nic_receive_bytes_total{host="' + host + '"}')
    question = quote("sum by (device) (rate(fabric_nic_receive_bytes_total[1m]))")
    say(f"""
  Try (in another terminal):
    curl '{url}/v1/samples?match={selector}&format=ndjson'
    curl '{url}/api/v1/query?query={question}'
    curl {url}/v1/hosts/{quote(host)}
    curl {url}/v1/catalog
    open {url}/docs in a browser: the whole HTTP interface
    add it to Grafana: a data source of type Prometheus with the URL {url}
    point a Prometheus here:  remote_write: [{{url: {url}/api/v1/write}}]

  Ctrl-C ends the demo.""")


def wait_for_end(processes: list[subprocess.Popen[bytes]], seconds: float | None) -> None:
    """Return when the person or the time says so, or a program has ended by itself."""
    deadline = None if seconds is None else time.monotonic() + seconds
    with contextlib.suppress(KeyboardInterrupt):
        while all(process.poll() is None for process in processes):
            if deadline is not None and time.monotonic() > deadline:
                return
            time.sleep(POLL_SECONDS)
