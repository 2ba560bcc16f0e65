"""What agents and pollers would report of a simulated cluster's cables: labels, as they arrive.

On InfiniBand a poller names switch ports by GUIDs. On RoCE switches report their LLDP neighbours:
of a host its full name and a MAC, of a switch its full name and a port's name; and, if asked for,
hosts report their side.
"""

from collections.abc import Iterator

from collector.contract.identity import METRIC_LABEL, Labels, LinkId, PortId, canonical_labels
from simulator.topology.model import Fabric, LinkKind, Topology

DOMAIN = "dc1.example.com"


def is_infiniband(topology: Topology) -> bool:
    return topology.fabric is Fabric.INFINIBAND


def switch_port_name(topology: Topology, number: int) -> str:
    """What a switch calls its port."""
    return str(number) if is_infiniband(topology) else f"Ethernet1/{number}"


def port_of(topology: Topology, link: int) -> PortId:
    """The port that a directed link leaves."""
    switch = int(topology.source_switch[link])
    if switch >= 0:
        name = topology.switches[switch].name
        return PortId(name, name, switch_port_name(topology, int(topology.port[link])))
    nic = int(topology.source[link]) % topology.nics
    return PortId(topology.host_name(topology.host_of_nic(nic)), topology.device_name(nic), "1")


def cable_links(topology: Topology) -> list[int]:
    """Every directed link that is a cable, both directions."""
    inside = {LinkKind.PCIE_IN, LinkKind.PCIE_OUT}
    return [link for link in range(topology.links) if LinkKind(topology.kind[link]) not in inside]


def cables(topology: Topology) -> set[LinkId]:
    """The cables that were simulated."""
    return {
        LinkId.between(port_of(topology, link), port_of(topology, int(topology.reverse[link])))
        for link in cable_links(topology)
    }


def series(metric: str, **labels: str) -> Labels:
    return canonical_labels({METRIC_LABEL: metric, **labels})


def things(topology: Topology) -> Iterator[Labels]:
    """Ports, interfaces and switches, without their cables."""
    for nic in range(topology.nics):
        host, device = topology.host_name(topology.host_of_nic(nic)), topology.device_name(nic)
        netdev, number = topology.interface_name(nic), nic % topology.nics_per_host
        yield series(
            "fabric_port_info",
            host=host,
            device=device,
            port="1",
            driver="mlx5_core",
            netdev=netdev,
            node_guid=f"{topology.nic_guid(nic):016x}",
            pci_path=f"pci0000:{number + 16:02x}/0000:{number + 16:02x}:00.0",
        )
        if not is_infiniband(topology):
            address = topology.nic_mac(nic)
            yield series("fabric_nic_info", host=host, device=netdev, address=address)
    for index, switch in enumerate(topology.switches):
        guid = f"0x{topology.switch_guid(index):016x}" if is_infiniband(topology) else ""
        yield series("fabric_switch_info", host=switch.name, method="poll", guid=guid)
    for link in cable_links(topology):
        port = port_of(topology, link)
        if port.host == port.device:
            yield series("fabric_port_state", host=port.host, device=port.device, port=port.port)


def ends(topology: Topology, *, of_hosts: bool = False) -> Iterator[Labels]:
    """The neighbours that switch ports, and if asked for hosts' ports, report."""
    for link in cable_links(topology):
        port = port_of(topology, link)
        if port.host == port.device or of_hosts:
            yield series(
                "fabric_link_info",
                host=port.host,
                device=port.device,
                port=port.port,
                **neighbour(topology, int(topology.reverse[link])),
            )


def neighbour(topology: Topology, link: int) -> dict[str, str]:
    """What the sender of a link reports of itself."""
    port, switch = port_of(topology, link), int(topology.source_switch[link])
    nic = int(topology.source[link]) % topology.nics
    if is_infiniband(topology):
        guid = topology.switch_guid(switch) if switch >= 0 else topology.nic_guid(nic)
        name = port.host if switch >= 0 else f"{port.host} HCA-{nic % topology.nics_per_host + 1}"
        return {
            "method": "ib",
            "peer_name": name,
            "peer_guid": f"0x{guid:016x}",
            "peer_port": port.port,
        }
    said = {"method": "lldp", "peer_name": f"{port.host}.{DOMAIN}"}
    if switch >= 0:
        chassis = topology.switch_mac(switch)
        return said | {
            "peer_chassis": chassis,
            "peer_port": port.port,
            "peer_port_id": port.port,
        }
    first_nic = topology.host_of_nic(nic) * topology.nics_per_host
    return said | {
        "peer_chassis": topology.nic_mac(first_nic),
        "peer_port": topology.interface_name(nic),
        "peer_port_id": topology.nic_mac(nic),
    }
