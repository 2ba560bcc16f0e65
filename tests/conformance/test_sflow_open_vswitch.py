"""sFlow from a real program, Open vSwitch, and read by another one, tshark.

Open vSwitch runs with its dummy datapath: no kernel module, no interface of this machine.
"""

import json
import os
import signal
import socket
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.contract.model import Event, Reading, Sample
from collector.doors.host import Host
from collector.doors.udp import parse_recorded
from collector.parsing.sflow import parse_datagram
from collector.sources.sflow import Settings, Sflow, SflowSwitch
from tests.doubles.gnmi_server import wait_until
from tests.stands.ports import free_port
from tests.tools import peers

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
FIXTURE = Path(__file__).resolve().parents[1] / "fixtures/sources/sflow/open_vswitch/tree/udp"
PORTS = (1, 2, 3)
SECONDS = 20
PACKETS = 60


class OpenVswitch:
    """A bridge of three ports: what comes in at 1 and 3 goes out at 2; all is sampled."""

    def __init__(self, folder: Path, target: int) -> None:
        self._folder = folder
        self._environment = os.environ | {
            name: str(folder) for name in ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR")
        }
        self._pids: list[int] = []
        database = f"unix:{folder}/db.sock"
        self._run("ovsdb-tool", "create", f"{folder}/conf.db", SCHEMA)
        self._start("ovsdb-server", f"{folder}/conf.db", f"--remote=p{database}")
        self._database = database
        self._set("--no-wait", "init")
        self._start("ovs-vswitchd", database, "--enable-dummy=system", "--disable-system")
        self._set("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
        for port in PORTS:
            name = f"p{port}"
            facts = ["type=dummy", f"ofport_request={port}", f"options:ifindex=100{port}"]
            self._set("add-port", "br0", name, "--", "set", "Interface", name, *facts)
        sflow = [
            "agent=127.0.0.1", f'targets="127.0.0.1:{target}"',
            "header=128", "sampling=1", "polling=1",
        ]  # fmt: skip
        self._set(
            "--", "--id=@s", "create", "sFlow", *sflow, "--", "set", "bridge", "br0", "sflow=@s"
        )
        for port in (1, 3):
            rule = f"in_port={port},actions=output:2"
            self._run("ovs-ofctl", "add-flow", f"unix:{folder}/br0.mgmt", rule)

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            words,
            env=self._environment,
            timeout=SECONDS,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    def _set(self, *words: str) -> None:
        self._run("ovs-vsctl", f"--db={self._database}", f"--timeout={SECONDS}", *words)

    def _start(self, program: str, *words: str) -> None:
        own = [f"--{what}={self._folder}/{program}.{what}" for what in ("pidfile", "unixctl")]
        log = f"--log-file={self._folder}/{program}.log"
        self._run(str(peers.find(program)), *words, *own, log, "--detach", "--no-chdir")
        self._pids.append(int((self._folder / f"{program}.pidfile").read_text()))

    def receive(self, port: int, source: str) -> None:
        packet = (
            f"in_port({port}),eth(src=50:54:00:00:00:0{port},dst=50:54:00:00:00:0a),"
            f"eth_type(0x0800),ipv4(src={source},dst=192.0.2.99,proto=17,tos=0,ttl=64,frag=no),"
            "udp(src=4791,dst=4791)"
        )
        control = f"{self._folder}/ovs-vswitchd.unixctl"
        self._run(
            "ovs-appctl", "-t", control, "netdev-dummy/receive", f"p{port}", packet, "--len", "1000"
        )

    def stop(self) -> None:
        for pid in reversed(self._pids):
            os.kill(pid, signal.SIGTERM)


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[tuple[OpenVswitch, int]]:
    port = free_port(socket.SOCK_DGRAM)
    folder = tmp_path / "ovs"
    folder.mkdir()
    made = OpenVswitch(folder, port)
    try:
        yield made, port
    finally:
        made.stop()


@pytest.mark.peer("ovs-vswitchd")
@pytest.mark.peer("ovsdb-server")
def test_what_open_vswitch_samples_and_counts_is_read(bridge: tuple[OpenVswitch, int]) -> None:
    switch, port = bridge
    settings = Settings(
        listen=f"127.0.0.1:{port}",
        switches=(SflowSwitch(name="leaf-1", address="127.0.0.1"),),
        counters=True,
        busy_ratio=1e-6,
    )
    source, host = Sflow(settings), Host()
    seen: list[Reading] = []

    def values(metric: str) -> dict[str, float]:
        return {
            dict(each.series.labels).get("port", ""): each.value
            for each in seen
            if isinstance(each, Sample) and each.series.metric == metric
        }

    def is_counted() -> bool:
        seen.extend(source.read(host))
        return values("fabric_port_transmit_unicast_packets_total").get("p2") == PACKETS

    def are_named() -> bool:
        seen.extend(source.read(host))
        return values("fabric_port_rate_bits_per_second").keys() == {"p1", "p2", "p3"}

    try:
        wait_until(are_named, "three ports")
        for number in range(PACKETS):
            switch.receive(1 if number % 3 else 3, f"192.0.2.{1 if number % 3 else 3}")
            source.look(host)
        wait_until(is_counted, "the counters have all packets")
    finally:
        host.close()
    assert max(values("fabric_switch_flow_samples_total").values()) == PACKETS
    assert values("fabric_port_receive_unicast_packets_total") == {"p1": 40, "p2": 0, "p3": 20}
    assert values("fabric_switch_flow_lost_datagrams_total") == {"": 0}
    events = [each for each in seen if isinstance(each, Event)]
    assert [each.labels["port"] for each in events] == ["p2"]
    assert events[0].attributes["talkers"].startswith("192.0.2.1>192.0.2.99=")


@pytest.mark.peer("tshark")
def test_tshark_reads_the_same_of_what_open_vswitch_sent(tmp_path: Path) -> None:
    """Datagrams and packets; it leaves counters at the first record that it does not know."""
    packets = [each for file in FIXTURE.iterdir() for each in parse_recorded(file.read_bytes())]
    capture = tmp_path / "sflow.pcap"
    capture.write_bytes(to_pcap([each.data for each in packets]))
    words = [str(peers.find("tshark")), "-r", str(capture), "-T", "json", "--no-duplicate-keys"]
    done = subprocess.run(words, timeout=60, check=True, capture_output=True, text=True)
    theirs: Counter[tuple[str, str]] = Counter()
    for one in json.loads(done.stdout):
        theirs.update(leaves(one["_source"]["layers"]["sflow"]))
    ours: Counter[tuple[str, str]] = Counter()
    for each in packets:
        found = parse_datagram(each.data)
        ours["sflow_245.sequence_number", str(found.sequence)] += 1
        ours["sflow_245.sysuptime", str(found.uptime_ms)] += 1
        for flow in found.flows:
            kind = "ipv6" if ":" in flow.source else "ip"
            ours[f"{kind}.src", flow.source] += 1
            ours[f"{kind}.dst", flow.destination] += 1
            ours["sflow.flow_sample.sampling_rate", str(flow.sampling_rate)] += 1
            ours["sflow.flow_sample.input_interface", str(flow.input)] += 1
            ours["sflow.flow_sample.output_interface_value", str(flow.output)] += 1
            ours["sflow_245.header.frame_length", str(flow.frame_bytes)] += 1
    names = {name for name, _ in ours}
    assert ours == Counter({key: n for key, n in theirs.items() if key[0] in names})


def leaves(tree: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - tshark's JSON
    if isinstance(tree, list):
        for each in tree:
            yield from leaves(each)
    elif isinstance(tree, dict):
        for name, value in tree.items():
            if isinstance(value, str):
                yield name, value
            elif isinstance(value, list) and all(isinstance(each, str) for each in value):
                yield from ((name, each) for each in value)
            else:
                yield from leaves(value)


def to_pcap(datagrams: list[bytes]) -> bytes:
    """A capture of UDP to port 6343, in IPv4 without a link layer (LINKTYPE_RAW)."""
    pieces = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 101)]
    for number, data in enumerate(datagrams):
        udp = struct.pack(">HHHH", 40000, 6343, 8 + len(data), 0) + data
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), number, 0, 64, 17, 0)
        packet = ip + socket.inet_aton("127.0.0.1") * 2 + udp
        pieces.append(struct.pack("<IIII", number, 0, len(packet), len(packet)) + packet)
    return b"".join(pieces)
