"""Many hosts: alike ones are judged once, few that differ from a majority are outliers."""

from collections.abc import Mapping, Sequence

import pytest

from collector.audit import fleet as fleet_module
from collector.audit.expectations import parse_expectations
from collector.audit.facts import Fact
from collector.audit.finding import Finding, Severity
from collector.audit.fleet import judge_fleet
from collector.audit.judge import check_names, judge_host
from tests.worlds.audit_cases import Changes, change, facts_of, good_host

GOOD = facts_of("good_h100")
JOB = "job 41"


def make_fleet(size: int, changed: Mapping[int, Changes]) -> dict[str, Sequence[Fact]]:
    """Hosts that are all the good one, but for some of them."""
    return {f"node-{n:03}": change(GOOD, changed.get(n, {})) for n in range(size)}


def titles(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(each.host, each.title) for each in findings]


def test_a_fleet_of_good_hosts_is_silent() -> None:
    assert judge_fleet(make_fleet(40, {})).findings == []


def test_one_host_of_ten_that_differs_is_an_outlier() -> None:
    changes = {("mlx5_0", "firmware"): "28.1", ("mlx5_1", "firmware"): "28.1"}
    changes |= {("mlx5_2", "firmware"): "28.1", ("mlx5_3", "firmware"): "28.1"}
    (finding,) = judge_fleet(make_fleet(10, {7: changes})).findings
    assert (finding.host, finding.check, finding.severity) == ("node-007", "outlier", "warning")
    assert "9 of 10 like hosts have 28.43.2026" in finding.title
    assert finding.expected == "28.43.2026"
    assert [each.device for each in finding.read] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]


def test_without_a_majority_no_host_is_accused() -> None:
    other = {("", "nvidia_driver"): "535.1"}
    (finding,) = judge_fleet(make_fleet(10, dict.fromkeys(range(4), other))).findings
    assert (finding.host, finding.severity) == ("", "info")
    assert "580.65.06 on 6" in finding.title
    assert "535.1 on 4" in finding.title


def test_of_few_hosts_none_is_an_outlier() -> None:
    assert judge_fleet(make_fleet(4, {0: {("", "kernel"): "5.4"}})).findings == []
    assert judge_fleet(make_fleet(5, {0: {("", "kernel"): "5.4"}})).findings != []


def test_only_hosts_with_the_same_hardware_are_compared() -> None:
    changes: Changes = {("", "nvidia_driver"): "535.1"} | {
        (f"gpu{n}", "model"): "NVIDIA A100" for n in range(4)
    }
    assert judge_fleet(make_fleet(10, {3: changes})).findings == []


def test_a_device_that_another_host_counts_otherwise_is_not_compared() -> None:
    swapped: Changes = {
        ("mlx5_0", "model"): "MT4117",
        ("mlx5_0", "firmware"): "14.1",
        ("mlx5_0", "pcie_width"): "8",
        ("mlx5_0", "pcie_width_max"): "8",
        ("mlx5_0", "pcie_speed"): "8.0",
        ("mlx5_0", "pcie_speed_max"): "8.0",
        **{
            ("mlx5_4", name): value
            for name, value in (
                *(("kind", "rdma"), ("model", "MT4129 MT_0000000838"), ("link_layer", "Ethernet")),
                *(("firmware", "28.43.2026"), ("port_state", "active")),
            )
        },
    }
    usual: Changes = {
        ("mlx5_4", name): value
        for name, value in (
            *(("kind", "rdma"), ("model", "MT4117"), ("link_layer", "Ethernet")),
            *(("firmware", "14.1"), ("port_state", "active")),
        )
    }
    hosts = make_fleet(10, dict.fromkeys(range(10), usual) | {3: swapped})
    outliers = [each for each in judge_fleet(hosts).findings if each.check == "outlier"]
    assert titles(outliers) == []


def test_the_slot_of_an_idle_gpu_and_a_management_nic_are_not_compared() -> None:
    changes = {("gpu1", "pcie_speed"): "2.5", ("eth0", "interface_mtu"): "9000"}
    assert judge_fleet(make_fleet(10, {3: changes})).findings == []


def test_a_setting_that_one_host_lacks_accuses_no_host() -> None:
    assert judge_fleet(make_fleet(10, {3: {("mlx5_0", "firmware"): ""}})).findings == []


@pytest.mark.parametrize("size", [1, 10])
def test_each_host_is_judged_as_by_itself(size: int) -> None:
    changes = {
        ("mlx5_1", "interface_mtu"): "1500",
        ("mlx5_1", "active_mtu"): "1024",
        (JOB, "NCCL_IB_DISABLE"): "1",
        (JOB, "memlock_bytes"): "65536",
    }
    alone = judge_host(good_host(changes))
    found = judge_fleet(make_fleet(size, {0: changes})).findings
    of_host = [each for each in found if each.host == "node-000" and each.check not in BETWEEN]
    assert [each.title for each in of_host] == [each.title for each in alone]
    assert {each.host for each in found} == {"node-000"}


BETWEEN = {"outlier", "job_environment"}


def test_a_job_whose_hosts_differ_names_the_host_that_does() -> None:
    found = judge_fleet(make_fleet(10, {4: {(JOB, "NCCL_IB_TC"): "104"}})).findings
    (finding,) = [each for each in found if each.check == "job_environment"]
    assert (finding.host, finding.device) == ("node-004", JOB)
    assert "NCCL_IB_TC" in finding.title
    assert finding.expected == "106"


def test_a_variable_that_half_of_a_job_has_accuses_no_host() -> None:
    half = {key: {(JOB, "NCCL_BUFFSIZE"): "1"} for key in range(5)}
    found = judge_fleet(make_fleet(10, half)).findings
    assert [(each.host, each.check) for each in found] == [("", "job_environment")]


def test_expectations_take_the_place_of_the_majority() -> None:
    text = '[[expect]]\nsetting = "nvidia_driver"\nvalues = ["535.1"]\n'
    site = parse_expectations(text, "site.toml", check_names())
    hosts = make_fleet(10, {3: {("", "nvidia_driver"): "535.1"}})
    found = judge_fleet(hosts, site).findings
    assert {each.check for each in found} == {"expectation"}
    assert {each.host for each in found} == set(hosts) - {"node-003"}


def test_an_expectation_for_some_hosts_is_held_against_those() -> None:
    text = '[[expect]]\nsetting = "kernel"\nvalues = ["7.0"]\nhosts = "node-00[12]"\n'
    site = parse_expectations(text, "site.toml", check_names())
    found = judge_fleet(make_fleet(4, {}), site).findings
    assert [each.host for each in found] == ["node-001", "node-002"]


def test_an_ignored_check_is_silent_over_the_fleet_too() -> None:
    site = parse_expectations('ignore = ["outlier"]', "site.toml", check_names())
    hosts = make_fleet(10, {3: {("", "nvidia_driver"): "535.1"}})
    assert judge_fleet(hosts).findings != []
    assert judge_fleet(hosts, site).findings == []


def test_alike_hosts_share_their_profile() -> None:
    hosts = {f"node-{n}": list(GOOD) for n in range(20)}
    survey = judge_fleet(hosts)
    assert (survey.hosts, survey.profiles) == (20, 1)


def test_what_a_check_explains_is_not_also_an_outlier() -> None:
    changes = {("mlx5_1", "pcie_width"): "8", ("mlx5_1", "pcie_max_payload_bytes"): "128"}
    found = judge_fleet(make_fleet(10, {3: changes})).findings
    explained = {(each.check, each.read[0].setting) for each in found}
    assert explained == {("pcie_link", "pcie_width"), ("outlier", "pcie_max_payload_bytes")}


def test_findings_beyond_the_bound_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "FINDINGS_MAX", 3)
    hosts = make_fleet(5, {key: {("", "cpu_governor"): "powersave"} for key in range(5)})
    survey = judge_fleet(hosts)
    assert (len(survey.findings), survey.left_out) == (3, 2)


def test_the_worst_comes_first() -> None:
    changes = {("", "cpu_governor"): "powersave", (JOB, "NCCL_IB_DISABLE"): "1"}
    found = judge_fleet(make_fleet(1, {0: changes})).findings
    assert [each.severity for each in found] == [Severity.CRITICAL, Severity.INFO]
