"""NICs that their drivers call dead: who is accused, until when, and what never accuses."""

import pytest

from alerts.detectors.gpu_error import detect as detect_gpus
from alerts.detectors.nic_failed import detect
from alerts.finding import Finding
from alerts.health.blame import signs_of
from alerts.health.judge import stand
from alerts.health.model import HealthState, TargetKind
from alerts.judge.verdict import judge
from collector.contract.kernel import MESSAGES
from collector.contract.model import Event
from collector.contract.units import NS
from collector.contract.verdict import Cause, Culprit, Reason
from tests.worlds.machines import GRID, machines
from tests.worlds.small_fabric import START_NS, STEP_NS, SmallFabric, host

NODE_3 = Culprit(host="node3", device="mlx5_0", port="1", switch="leaf-0", switch_port="4")


def said(
    message: str = "nic_firmware_dead",
    *,
    cell: int = 20,
    severity: str = "fatal",
    component: str = "nic",
    labels: dict[str, str] | None = None,
    **more: str,
) -> Event:
    attributes = {"message": message, "severity": severity, "component": component, "count": "1"}
    return Event(
        kind="kernel_message",
        time_ns=START_NS + cell * STEP_NS,
        labels={"host": "node3", "device": "mlx5_0"} if labels is None else labels,
        message=f"NIC mlx5_0: {message}",
        attributes=attributes | more,
    )


def window_of(*events: Event) -> SmallFabric:
    fabric = SmallFabric()
    fabric.events = list(events)
    return fabric


def test_a_fatal_message_names_the_nic_and_its_cable() -> None:
    (found,) = detect(window_of(said()).window())
    assert (found.cause, found.reason) == (Cause.HANG, Reason.NIC_FAILED)
    assert (found.culprit, found.since_ns, found.until_ns) == (
        NODE_3, START_NS + 20 * STEP_NS, None,
    )  # fmt: skip
    assert found.evidence[0].metric == MESSAGES


def test_messages_that_repeat_are_one_finding_since_the_first() -> None:
    again = said(cell=26, age_seconds="60")
    (found,) = detect(window_of(again, said(cell=25, age_seconds="55"), said(cell=27)).window())
    assert found.since_ns == START_NS + 25 * STEP_NS - 55 * NS
    assert found.evidence[0].value == 3


def test_a_nic_that_its_driver_has_started_again_is_over() -> None:
    alive = said("nic_recovered", cell=24, severity="warning")
    (found,) = detect(window_of(said(), alive).window())
    assert found.until_ns == START_NS + 24 * STEP_NS
    (found,) = detect(window_of(said(), alive, said(cell=26, age_seconds="900")).window())
    assert (found.since_ns, found.until_ns) == (START_NS + 24 * STEP_NS, None)


@pytest.mark.parametrize(
    "event",
    [
        said("nic_command_timeout", severity="error"),
        said("pcie_corrected", severity="warning", component="pcie"),
        said("nvme_lost", component="disk", labels={"host": "node3", "device": "nvme2"}),
        said("pcie_lost", component="pcie", labels={"host": "node3", "device": "nvme2"}),
        said("nvswitch_fatal", component="nvswitch"),
        said("nic_recovered", severity="warning"),
        said(labels={"host": "node3"}),
        said(labels={"device": "mlx5_0"}),
        said(severity="FATAL"),
    ],
)
def test_what_is_not_fatal_or_not_about_a_nic_accuses_none(event: Event) -> None:
    assert detect(window_of(event).window()) == []
    assert judge(window_of(event).window()) == []


def test_a_nic_whose_ports_were_never_read_is_named_by_its_driver() -> None:
    event = said(labels={"host": "node3", "device": "0000:99:00.0"})
    (found,) = detect(window_of(event).window())
    assert found.culprit == Culprit(host="node3", device="0000:99:00.0")


def test_odd_numbers_in_an_event_do_no_harm() -> None:
    event = said(age_seconds="-5", count="9" * 40)
    (found,) = detect(window_of(event).window())
    assert (found.since_ns, found.evidence[0].value) == (START_NS + 20 * STEP_NS, 1)


# --- verdicts, health ----------------------------------------------------------------------------


def test_a_job_whose_nic_is_dead_gets_a_verdict_with_the_line_of_the_kernel() -> None:
    (verdict,) = judge(window_of(said()).window())
    assert (verdict.cause, verdict.reason) == (Cause.HANG, Reason.NIC_FAILED)
    assert (verdict.culprit.host, verdict.culprit.device) == ("node3", "mlx5_0")
    assert "nic_firmware_dead" in verdict.evidence[0].text
    assert [one.labels["kind"] for one in verdict.evidence] == ["nic_firmware_dead"]


def test_a_job_that_stands_without_a_culprit_hangs_by_its_dead_nic() -> None:
    window = window_of(said()).window()
    job = window.jobs[0].job
    stands = Finding(
        detector="stall",
        cause=Cause.STALL,
        culprit=Culprit(job=job),
        strength=0.8,
        since_ns=START_NS + 20 * STEP_NS,
        until_ns=None,
        last_ns=window.to_ns,
        job=job,
    )
    (alone,) = judge(window, [stands])
    assert (alone.cause, alone.culprit.host) == (Cause.STALL, "")
    (verdict,) = judge(window, [stands, *detect(window)])
    assert (verdict.cause, verdict.reason) == (Cause.HANG, Reason.NIC_FAILED)
    assert (verdict.culprit.host, verdict.culprit.device) == ("node3", "mlx5_0")


def test_a_host_with_a_dead_nic_that_no_job_uses_is_suspect() -> None:
    charges = signs_of(detect(window_of(said()).window()), [])
    of_host = [one for one in charges if one.target.kind is TargetKind.HOST]
    standing = stand(of_host, START_NS + 30 * STEP_NS)
    assert standing.state is HealthState.SUSPECT
    assert "nic_failed" in of_host[0].short


def test_the_kernel_s_lines_about_the_accused_are_evidence_and_those_about_others_are_not() -> None:
    events = (
        said("nic_command_timeout", severity="error"),
        said("pcie_corrected", severity="warning", component="pcie", cell=19),
        said("nic_overheated", severity="error", labels={"host": "node2", "device": "mlx5_0"}),
        said("nvme_reset", severity="error", labels={"host": "node3", "device": "nvme0"}),
    )
    fabric = window_of(*events)
    fabric.set("link_downed_total", host(3), 0.2, slice(20, None))
    (verdict,) = judge(fabric.window())
    assert (verdict.cause, verdict.culprit.host) == (Cause.LINK_FLAP, "node3")
    kinds = [one.labels["kind"] for one in verdict.evidence if one.metric == MESSAGES]
    assert kinds == ["pcie_corrected", "nic_command_timeout"]


# --- XIDs of the log -----------------------------------------------------------------------------


def xid(kind: str) -> Event:
    return Event(
        kind=kind,
        time_ns=GRID.end_ns - 10 * NS,
        labels={"host": "node1", "gpu": "5"},
        message=f"GPU 5: XID 79 by {kind}.",
        attributes={"xid": "79"},
    )


@pytest.mark.parametrize("kinds", [("kernel_message",), ("gpu_xid", "kernel_message")])
def test_an_xid_of_the_log_counts_once_with_nvml_and_without(kinds: tuple[str, ...]) -> None:
    (finding,) = detect_gpus(machines(events=tuple(xid(kind) for kind in kinds)))
    assert finding.culprit == Culprit(host="node1", gpu=5)
    assert finding.evidence[0].value == 1
    assert kinds[0] in finding.evidence[0].text
