"""The settings that are read: their names, and which must be the same on like hosts.

Names of NCCL's variables are settings too, under their own names; they are compared within a job,
not between hosts.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

KIND = "kind"
KIND_HOST, KIND_RDMA, KIND_NIC, KIND_GPU, KIND_JOB = "host", "rdma", "nic", "gpu", "job"

NCCL_PREFIX = "NCCL_"

# --- devices: RDMA devices, interfaces, GPUs -----------------------------------------------------

MODEL = "model"
DRIVER = "driver"
DRIVER_VERSION = "driver_version"
FIRMWARE = "firmware"
NUMA_NODE = "numa_node"
PCI_PATH = "pci_path"
PCIE_SPEED, PCIE_SPEED_MAX = "pcie_speed", "pcie_speed_max"
PCIE_WIDTH, PCIE_WIDTH_MAX = "pcie_width", "pcie_width_max"
RELAXED_ORDERING = "pcie_relaxed_ordering"
MAX_READ_REQUEST = "pcie_max_read_request_bytes"
MAX_PAYLOAD = "pcie_max_payload_bytes"
ACS_BRIDGES = "acs_redirecting_bridges"
IOMMU_DOMAIN = "iommu_domain"

# --- RDMA devices --------------------------------------------------------------------------------

LINK_LAYER = "link_layer"
INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
INTERFACE = "interface"
INTERFACE_MTU = "interface_mtu"
ACTIVE_MTU, MAX_MTU = "active_mtu", "max_mtu"
PORT_STATE, ACTIVE = "port_state", "active"
PORT_RATE = "port_rate_gigabits"
PORT_RATE_MAX = "port_rate_max_gigabits"
PORT_LANES = "port_lanes"
ROCE_V2_GIDS = "roce_v2_gid_indexes"
OTHER_TRAFFIC = "other_traffic_share"
FLOW_STEERING = "flow_steering_mode"
PARTITIONS = "partitions"
"""The port's keys by index, as `collector.audit.partitions` writes them. Compared within a job, not
between like hosts: tenants have partitions of their own."""

TRUST = "qos_trust"
PFC = "pfc_priorities"
DSCP_MAP = "dscp_priorities"
PAUSE = "pause_frames"
ECN_NOTIFY, ECN_REACT = "ecn_notification_priorities", "ecn_reaction_priorities"
TRAFFIC_CLASS = "traffic_class"
CMA_TOS = "cma_roce_tos"
DCQCN_PREFIX = "dcqcn_"

NONE = "none"
"""The value of a list that was read and is empty."""

# --- the host ------------------------------------------------------------------------------------

KERNEL = "kernel"
NVIDIA_DRIVER, NVIDIA_FLAVOUR = "nvidia_driver", "nvidia_driver_flavour"
PEER_MEMORY = "peer_memory_module"
CPU_GOVERNOR = "cpu_governor"
NUMA_BALANCING = "numa_balancing"
NUMA_NODES = "numa_nodes"
IOMMU_COMMAND_LINE = "iommu_command_line"
HUGE_PAGES = "transparent_huge_pages"

# --- jobs ----------------------------------------------------------------------------------------

MEMLOCK = "memlock_bytes"
UNLIMITED = "unlimited"
CAN_LOCK = "may_lock_memory"
FILE_MISSING = "file_missing"
"""`NCCL_TOPO_FILE=/path`: a file that a variable names and that is not there."""


IDENTIFYING = frozenset({KIND, MODEL, LINK_LAYER, PORT_STATE, PORT_RATE})
"""Settings that identify the training NICs: every check may look at these."""
JOB_SETTINGS = frozenset({MEMLOCK, CAN_LOCK, FILE_MISSING})
"""Settings of jobs, besides NCCL's variables."""


class Compared(msgspec.Struct, frozen=True):
    """A setting that like hosts have in common; why, and how to align one."""

    why: str
    fix: str
    matters: bool = True
    """Whether a host that differs loses bandwidth; else it is only worth knowing."""


_QOS = "A host that marks or pauses otherwise than its peers is served from another queue."
_CONTROL = "Congestion control is fair only among NICs that react alike."

COMPARED: dict[str, Compared] = {
    FIRMWARE: Compared(
        "NICs of one model behave alike only with one firmware.",
        "mlxfwmanager --online -u -d {pci}",
    ),
    DRIVER: Compared("Another driver means other defaults.", "install the driver of the others"),
    DRIVER_VERSION: Compared("Drivers differ in defaults and bugs.", "install the others' version"),
    INTERFACE_MTU: Compared(
        "Packets of one size pass every path.", "ip link set dev {interface} mtu {majority}"
    ),
    ACTIVE_MTU: Compared("Connections use the smaller MTU of both ends.", "set the port's MTU"),
    PORT_RATE: Compared(
        "A collective runs at the speed of its slowest link.", "reseat or replace the cable"
    ),
    PORT_LANES: Compared("A lane that was given up is lost speed.", "reseat or replace the cable"),
    PCIE_SPEED: Compared("The slot bounds what the NIC can move.", "reseat the card"),
    PCIE_WIDTH: Compared("The slot bounds what the NIC can move.", "reseat the card"),
    RELAXED_ORDERING: Compared(
        "Strict ordering makes writes to GPUs wait for each other.", "setpci -s {pci} CAP_EXP+8.w"
    ),
    MAX_READ_REQUEST: Compared(
        "Small reads leave the slot idle between them.", "setpci -s {pci} CAP_EXP+8.w"
    ),
    MAX_PAYLOAD: Compared("Small packets waste the slot.", "set it in the BIOS", matters=False),
    TRUST: Compared(_QOS, "mlnx_qos -i {interface} --trust {majority}"),
    PFC: Compared(_QOS, "mlnx_qos -i {interface} --pfc …  (as its peers: {majority})"),
    DSCP_MAP: Compared(_QOS, "mlnx_qos -i {interface} --dscp2prio …"),
    PAUSE: Compared(_QOS, "ethtool -A {interface} rx off tx off"),
    ECN_NOTIFY: Compared(_CONTROL, "echo 1 > /sys/class/net/{interface}/ecn/roce_np/enable/PRIO"),
    ECN_REACT: Compared(_CONTROL, "echo 1 > /sys/class/net/{interface}/ecn/roce_rp/enable/PRIO"),
    TRAFFIC_CLASS: Compared(
        _QOS, "echo {majority} > /sys/class/infiniband/{device}/tc/1/traffic_class"
    ),
    CMA_TOS: Compared(_QOS, "cma_roce_tos -d {device} -t {majority}"),
    FLOW_STEERING: Compared(
        "The modes differ in how fast connections are made.",
        "devlink dev param set pci/{pci} name flow_steering_mode value {majority} cmode runtime",
        matters=False,
    ),
    KERNEL: Compared(
        "Kernels differ in drivers and defaults.", "boot the others' kernel", matters=False
    ),
    NVIDIA_DRIVER: Compared("Drivers differ in speed and bugs.", "install the others' version"),
    NVIDIA_FLAVOUR: Compared(
        "Only the open modules offer dma-buf.", "install the others' kind of driver", matters=False
    ),
    PEER_MEMORY: Compared("Without it, data go through the host's memory.", "modprobe {majority}"),
    CPU_GOVERNOR: Compared(
        "The proxy threads of NCCL wait for the processor.", "cpupower frequency-set -g {majority}"
    ),
    NUMA_BALANCING: Compared(
        "Page migration stalls the processes that it helps.",
        "sysctl kernel.numa_balancing={majority}",
        matters=False,
    ),
    HUGE_PAGES: Compared(
        "Hosts that map memory otherwise register it at another speed.",
        "echo {majority} > /sys/kernel/mm/transparent_hugepage/enabled",
        matters=False,
    ),
    IOMMU_DOMAIN: Compared("Translation costs each transfer.", "boot with iommu=pt"),
    ACS_BRIDGES: Compared(
        "Redirection sends GPU to NIC traffic through the root.", "setpci -s BRIDGE ECAP_ACS+6.w=0"
    ),
}
"""Settings that like hosts share. `{…}` in a fix is filled in."""


@lru_cache(maxsize=1024)
def compared(setting: str) -> Compared | None:
    if setting.startswith(DCQCN_PREFIX):
        return Compared(_CONTROL, "set the parameter as its peers have it: {majority}")
    return COMPARED.get(setting)
