"""Each check reports facts that are wrong, and is silent on those that are right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.audit.checks import discover
from collector.audit.expectations import Expectations, parse_expectations
from collector.audit.facts import Facts, Unread
from collector.audit.finding import Finding, Severity
from collector.audit.fleet import judge_fleet
from collector.audit.judge import blinded, check_names, judge_host
from collector.audit.settings import IDENTIFYING
from collector.contract.errors import SettingsError
from collector.contract.reason import UnreadReason
from tests.worlds.audit_cases import Changes, good_host

NICS = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")
GPUS = ("gpu0", "gpu1", "gpu2", "gpu3")
JOB = "job 41"
WARNING, INFO, CRITICAL = Severity.WARNING, Severity.INFO, Severity.CRITICAL


def on_all(devices: tuple[str, ...], setting: str, value: str) -> dict[tuple[str, str], str]:
    return {(device, setting): value for device in devices}


def infiniband(**more: str) -> dict[tuple[str, str], str]:
    changes = on_all(NICS, "link_layer", "InfiniBand")
    changes |= on_all(NICS, "interface_mtu", "4092")
    for setting, value in more.items():
        changes |= on_all(NICS, setting, value)
    return changes


WRONG: list[tuple[str, Changes, str, Severity]] = [
    (
        "mtu",
        {("mlx5_1", "interface_mtu"): "1500", ("mlx5_1", "active_mtu"): "1024"},
        "1500",
        WARNING,
    ),
    ("mtu", on_all(NICS, "interface_mtu", "4220"), "4220", INFO),
    ("mtu", infiniband(active_mtu="2048"), "2048", WARNING),
    ("gpu_nic_affinity", on_all(NICS, "numa_node", "0"), "gpu2, gpu3", WARNING),
    (
        "gpu_nic_affinity",
        {("mlx5_1", "pci_path"): "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1b:00.0"},
        "gpu1",
        WARNING,
    ),
    ("pcie_link", {("mlx5_2", "pcie_width"): "8"}, "x8", WARNING),
    ("pcie_link", {("mlx5_2", "pcie_speed"): "16.0"}, "16 GT/s", WARNING),
    ("pcie_link", {("gpu1", "pcie_width"): "4"}, "x4", WARNING),
    (
        "pcie_link",
        {
            **on_all(NICS, "port_rate_gigabits", "100"),
            **on_all(NICS, "port_rate_max_gigabits", ""),
            ("mlx5_2", "pcie_width"): "8",
        },
        "x8",
        INFO,
    ),
    ("port_rate", {("mlx5_3", "port_rate_gigabits"): "200"}, "200", CRITICAL),
    ("port_rate", on_all(NICS, "port_rate_gigabits", "200"), "could do 400", INFO),
    ("lossless", {("mlx5_0", "pause_frames"): "rx"}, "global pause", WARNING),
    ("lossless", on_all(NICS, "ecn_reaction_priorities", "none"), "one half", WARNING),
    (
        "lossless",
        on_all(NICS, "ecn_reaction_priorities", "none")
        | on_all(NICS, "ecn_notification_priorities", "none"),
        "PFC without ECN",
        WARNING,
    ),
    ("lossless", {(JOB, "NCCL_IB_TC"): "160"}, "priority 5", WARNING),
    ("lossless", on_all(NICS, "traffic_class", "160"), "priority 5", WARNING),
    ("lossless", on_all(NICS, "qos_trust", "pcp"), "trusts PCP", WARNING),
    ("pcie_ordering", {("mlx5_0", "pcie_relaxed_ordering"): "off"}, "mlx5_0", WARNING),
    ("pcie_ordering", on_all(NICS, "pcie_max_read_request_bytes", "512"), "512", INFO),
    ("peer_to_peer", {("gpu0", "acs_redirecting_bridges"): "0000:15:01.0"}, "1 bridges", WARNING),
    ("peer_to_peer", on_all(NICS, "iommu_domain", "DMA"), "IOMMU", WARNING),
    (
        "gpudirect",
        {("", "peer_memory_module"): "none", ("", "nvidia_driver_flavour"): "proprietary"},
        "missing",
        CRITICAL,
    ),
    (
        "gpudirect",
        {("", "peer_memory_module"): "none", ("", "kernel"): "5.4.0-42-generic"},
        "missing",
        CRITICAL,
    ),
    ("memory_limits", {(JOB, "memlock_bytes"): "65536"}, "may lock", WARNING),
    ("processor_settings", {("", "cpu_governor"): "performance,powersave"}, "powersave", INFO),
    ("processor_settings", {("", "numa_balancing"): "1"}, "NUMA", INFO),
    ("nccl_transport", {(JOB, "NCCL_IB_DISABLE"): "1"}, "TCP", CRITICAL),
    ("nccl_transport", {(JOB, "NCCL_NET"): "Socket"}, "TCP", CRITICAL),
    ("nccl_transport", {("/etc/nccl.conf", "NCCL_P2P_DISABLE"): "1"}, "NVLink", CRITICAL),
    ("nccl_transport", {(JOB, "NCCL_SHM_DISABLE"): "1"}, "network", WARNING),
    ("nccl_transport", {(JOB, "NCCL_NVLS_ENABLE"): "0"}, "NVSwitches", INFO),
    ("nccl_transport", {(JOB, "NCCL_NET_GDR_LEVEL"): "LOC"}, "GPUDirect", WARNING),
    ("nccl_transport", {(JOB, "NCCL_SOCKET_IFNAME"): "=eth0"}, "management", INFO),
    ("nccl_tuning", {(JOB, "NCCL_ALGO"): "Tree"}, "NCCL_ALGO=Tree", WARNING),
    ("nccl_tuning", {(JOB, "NCCL_PROTO"): "LL"}, "NCCL_PROTO=LL", WARNING),
    ("nccl_tuning", {(JOB, "file_missing"): "NCCL_TOPO_FILE=/x"}, "/x", WARNING),
    ("nccl_tuning", {(JOB, "NCCL_IB_HCA"): "=mlx5_0:1"}, "mlx5_1, mlx5_2, mlx5_3", WARNING),
    ("nccl_tuning", {(JOB, "NCCL_IB_HCA"): "bnxt"}, "no RDMA device", CRITICAL),
    ("nccl_tuning", {(JOB, "NCCL_IB_GID_INDEX"): "2"}, "not RoCE v2", WARNING),
    (
        "nccl_ranks",
        {(f"{JOB} rank 1", "kind"): "job", (f"{JOB} rank 1", "NCCL_BUFFSIZE"): "1"},
        "rank 1",
        WARNING,
    ),
    ("other_traffic", {("mlx5_2", "other_traffic_share"): "10 to 50 %"}, "mlx5_2", WARNING),
    ("unlike_nics", {("mlx5_2", "firmware"): "28.1"}, "28.1", WARNING),
    ("unlike_nics", {("mlx5_2", "dcqcn_rpg_ai_rate"): "50"}, "rpg_ai_rate", WARNING),
    ("unlike_nics", {("mlx5_2", "interface_mtu"): "9216"}, "9216", WARNING),
]

RIGHT: list[Changes] = [
    {},
    infiniband(active_mtu="4096", qos_trust="", pfc_priorities="", dscp_priorities=""),
    # A port that cannot do more, and a management NIC with RDMA and a small MTU.
    infiniband(active_mtu="2048", max_mtu="2048"),
    {
        ("mlx5_9", "kind"): "rdma",
        ("mlx5_9", "model"): "MT4117",
        ("mlx5_9", "link_layer"): "Ethernet",
        ("mlx5_9", "port_state"): "active",
        ("mlx5_9", "port_rate_gigabits"): "25",
        ("mlx5_9", "interface_mtu"): "1500",
        ("mlx5_9", "firmware"): "14.1",
        ("mlx5_9", "pcie_width"): "4",
        ("mlx5_9", "pcie_width_max"): "8",
        ("mlx5_9", "pcie_speed"): "8.0",
        ("mlx5_9", "pcie_speed_max"): "8.0",
    },
    # An idle GPU slows its slot down.
    on_all(GPUS, "pcie_speed", "2.5"),
    # dma-buf takes the module's place.
    {("", "peer_memory_module"): "none"},
    # One link that is down among few accuses no host; nor does a virtual machine's unknown node.
    {("mlx5_3", "port_state"): "down", ("mlx5_3", "port_rate_gigabits"): ""},
    on_all((*NICS, *GPUS), "numa_node", ""),
    # No congestion control known, lossy by choice, and no mark.
    on_all(NICS, "pfc_priorities", "none") | on_all(NICS, "traffic_class", "0"),
    {(JOB, "memlock_bytes"): "65536", (JOB, "may_lock_memory"): "yes"},
    {(JOB, "NCCL_SOCKET_IFNAME"): "^docker,lo", (JOB, "NCCL_IB_HCA"): "^mlx5_bond"},
    {(JOB, "NCCL_SOCKET_IFNAME"): "eth2", (JOB, "NCCL_P2P_DISABLE"): "0"},
    on_all(NICS, "other_traffic_share", "1 to 10 %"),
    {("", "numa_balancing"): "1", ("", "numa_nodes"): "1"},
    {("mlx5_0", "firmware"): "28.1", ("mlx5_1", "firmware"): "28.1"},
]


@pytest.mark.parametrize(("check", "changes", "title", "severity"), WRONG)
def test_a_check_speaks_on_what_is_wrong(
    check: str, changes: Changes, title: str, severity: Severity
) -> None:
    found = judge_host(good_host(changes))
    mine = [each for each in found if each.check == check and title in each.title]
    assert mine, [each.title for each in found]
    assert {each.severity for each in mine} == {severity}
    others = {each.check for each in found} - {check}
    # A rank that differs is also judged by itself; a device with another way to the host as well.
    assert others <= {"nccl_ranks"}, [each.title for each in found]


@pytest.mark.parametrize("changes", RIGHT)
def test_what_may_be_meant_so_is_no_finding(changes: Changes) -> None:
    found = judge_host(good_host(changes))
    assert [each.title for each in found] == []


def test_every_check_has_facts_on_which_it_speaks() -> None:
    assert set(discover()) == {check for check, *_ in WRONG}


def check_is_complete(finding: Finding) -> None:
    words = (finding.title, finding.expected, finding.why, finding.source, finding.fix)
    assert all(words)
    assert finding.cost
    assert finding.read
    assert all(each.setting and each.value and each.origin for each in finding.read)
    assert 0 < finding.confidence <= 1
    assert finding.host == "node-0"


@pytest.mark.parametrize(("check", "changes", "title", "severity"), WRONG)
def test_a_finding_has_every_field(
    check: str, changes: Changes, title: str, severity: Severity
) -> None:
    del check, title, severity
    for finding in judge_host(good_host(changes)):
        check_is_complete(finding)


@pytest.mark.parametrize(("check", "changes", "title", "severity"), WRONG)
def test_a_check_names_the_settings_that_it_looks_at(
    check: str, changes: Changes, title: str, severity: Severity
) -> None:
    del title, severity
    base = {"kind", "model", "link_layer", "port_state", "port_rate_gigabits", "leaf"}
    for finding in judge_host(good_host(changes)):
        if finding.check == check:
            settings = {each.setting for each in finding.read}
            sees = discover()[check].sees
            assert [name for name in settings - base if not sees(name)] == []


@pytest.mark.parametrize("changes", [*(changes for _, changes, *_ in WRONG), *RIGHT])
def test_a_check_gives_the_same_answer_on_the_settings_that_it_sees(changes: Changes) -> None:
    facts = good_host(changes)
    for check in discover().values():
        seen = [
            fact for fact in facts.all() if fact.setting in IDENTIFYING or check.sees(fact.setting)
        ]
        assert list(check.judge(Facts("node-0", seen))) == list(check.judge(facts))


@given(st.data())
def test_no_value_of_an_agent_breaks_a_check(data: st.DataObject) -> None:
    """Facts come over the network: a value may be anything."""
    odd = st.text(max_size=20) | st.sampled_from(["-1", "1e400", "٣", "none", "0", "9" * 300, "^="])
    known = sorted({(fact.device, fact.setting) for fact in good_host().all()})
    places = st.sampled_from(known)
    changes = data.draw(st.dictionaries(places, odd, max_size=30))
    hosts = {f"node-{n}": sorted(good_host(changes).all()) for n in range(6)}
    judge_fleet(hosts | {"other": sorted(good_host().all())})


def test_the_nic_that_contradicts_itself_is_not_also_called_different() -> None:
    found = judge_host(good_host({("mlx5_0", "pause_frames"): "rx,tx"}))
    assert [each.check for each in found] == ["lossless"]


# --- expectations --------------------------------------------------------------------------------


def expect(text: str) -> Expectations:
    return parse_expectations(text, "site.toml", check_names())


def test_an_expectation_is_a_finding_where_it_is_not_met() -> None:
    site = expect('[[expect]]\nsetting = "firmware"\nvalues = ["28.44"]\ndevices = "mlx5_*"\n')
    (finding,) = judge_host(good_host(), site)
    assert (finding.check, finding.confidence) == ("expectation", 1.0)
    assert "28.43.2026" in finding.title
    assert finding.expected == "28.44"


def test_what_the_site_expects_is_no_finding_of_a_check() -> None:
    changes = on_all(NICS, "interface_mtu", "4220")
    site = expect('[[expect]]\nsetting = "interface_mtu"\nvalues = ["4220", "1500"]\n')
    assert judge_host(good_host(changes)) != []
    assert judge_host(good_host(changes), site) == []


def test_an_expectation_of_other_hosts_does_not_apply_here() -> None:
    site = expect('[[expect]]\nsetting = "firmware"\nvalues = ["1"]\nhosts = "other-*"\n')
    assert judge_host(good_host(), site) == []


def test_a_check_that_is_ignored_is_silent() -> None:
    changes = {("", "cpu_governor"): "powersave"}
    assert judge_host(good_host(changes), expect('ignore = ["processor_settings"]')) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('ignore = ["nonsense"]', "no check 'nonsense'"),
        ("[[expect]]\nsetting = 'mtu'\n", "values"),
        ("[[expect]]\nsetting = 'mtu'\nvalues = []\n", "no values"),
        ("[[expect]]\nsetting = 'm'\nvalues = ['1']\nvalue = '1'\n", "unknown field"),
        ("ignore = [", "site.toml"),
        ("[[expect]]\nsetting = 'm'\nvalues = ['1']\n" * 1001, "EXPECTATIONS_MAX"),
    ],
)
def test_a_wrong_file_of_expectations_is_explained(text: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        expect(text)


def test_what_could_not_be_read_names_the_checks_that_miss_it() -> None:
    unread = Unread("", "acs_redirecting_bridges", UnreadReason.UNREADABLE)
    assert blinded(unread) == ["peer_to_peer"]
    assert "nccl_transport" in blinded(Unread("", "NCCL environment", UnreadReason.UNREADABLE))
