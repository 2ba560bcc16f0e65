"""What nodes should carry: conditions, taints and labels, from what is known."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from api.remote.answers import Action, Actions, Applied, FleetHealth, HostHealth
from api.remote.kubernetes.objects import Node
from api.remote.kubernetes.plan import (
    ACTION_NOTE,
    HEARTBEAT_SECONDS,
    Known,
    Urgency,
    know,
    plan_fleet,
    plan_node,
    standing_drains,
)

NOW = dt.datetime(2026, 11, 16, 5, 24, 33, tzinfo=dt.UTC)
EARLIER = "2026-11-16T05:20:00Z"
OURS = {"key": "fabricscope.io/unhealthy", "value": "draining", "effect": "NoSchedule"}


def node(name: str = "n1", **parts: Any) -> Node:  # noqa: ANN401 - parts of a node
    found: Node = msgspec.convert(
        {
            "metadata": {"name": name, "resourceVersion": "7", **parts.pop("metadata", {})},
            **parts,
        },
        Node,
    )
    return found


def conditioned(status: str, reason: str, message: str, heartbeat: str = EARLIER) -> Node:
    condition = {
        "type": "FabricHealthy",
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": heartbeat,
        "lastTransitionTime": "2026-11-15T00:00:00Z",
    }
    return node(status={"conditions": [condition]})


def known(state: str = "", *reasons: str, **more: Any) -> Known:  # noqa: ANN401
    hosts = {"n1": HostHealth("n1", state, reasons)} if state else {}
    return Known(hosts=hosts, **more)


def drain(number: str = "a1", host: str = "n1", **more: Any) -> Action:  # noqa: ANN401
    words = {"kind": "drain", "state": "standing", "hold": "draining", "reason": "r", "by": "p"}
    return Action(id=number, host=host, **{**words, **more})


def tainted(by: str = "a1", *others: dict[str, str]) -> Node:
    return node(metadata={"annotations": {ACTION_NOTE: by}}, spec={"taints": [*others, OURS]})


# --- conditions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "status", "reason"),
    [
        ("healthy", "True", "Healthy"),
        ("suspect", "Unknown", "Suspect"),
        ("degraded", "False", "Degraded"),
        ("draining", "False", "Draining"),
        ("out", "False", "Out"),
        ("haunted", "Unknown", "StateUnknown"),
    ],
)
def test_each_state_has_its_condition(state: str, status: str, reason: str) -> None:
    (write,) = plan_node(node(), known(state, "w1", "w2"), NOW)
    assert write.is_status
    assert write.patch == {
        "status": {
            "conditions": [
                {
                    "type": "FabricHealthy",
                    "status": status,
                    "reason": reason,
                    "message": "w1; w2",
                    "lastHeartbeatTime": "2026-11-16T05:24:33Z",
                    "lastTransitionTime": "2026-11-16T05:24:33Z",
                }
            ]
        }
    }


def test_a_transition_is_a_change_of_status_alone() -> None:
    (write,) = plan_node(conditioned("False", "Degraded", "w"), known("out", "gone"), NOW)
    (condition,) = write.patch["status"]["conditions"]
    assert condition["lastTransitionTime"] == "2026-11-15T00:00:00Z"
    (write,) = plan_node(conditioned("True", "Healthy", "w"), known("out", "gone"), NOW)
    (condition,) = write.patch["status"]["conditions"]
    assert condition["lastTransitionTime"] == "2026-11-16T05:24:33Z"


@pytest.mark.parametrize(
    ("heartbeat", "is_due"),
    [
        (EARLIER, False),
        (f"{NOW - dt.timedelta(seconds=HEARTBEAT_SECONDS):%Y-%m-%dT%H:%M:%SZ}", True),
        ("2027-01-01T00:00:00Z", True),
        ("never", True),
        ("2026-11-16T05:20:00", True),
    ],
)
def test_what_says_the_same_is_written_again_now_and_then(heartbeat: str, *, is_due: bool) -> None:
    writes = plan_node(
        conditioned("False", "Degraded", "w", heartbeat), known("degraded", "w"), NOW
    )
    assert [write.urgency for write in writes] == [Urgency.HEARTBEAT] * is_due


def test_nodes_that_the_service_never_heard_of_are_left_alone() -> None:
    assert plan_node(node(), known(), NOW) == []
    doubt = ("EvidenceStale", "verdicts: nothing was evaluated")
    assert plan_node(node(), known(health_doubt=doubt), NOW) == []
    (write,) = plan_node(conditioned("True", "Healthy", "w"), known(), NOW)
    assert write.patch["status"]["conditions"][0]["reason"] == "NotReporting"


def test_doubt_is_unknown_whatever_was_known() -> None:
    health = FleetHealth(("a", "b"), [HostHealth("n1", "degraded")])
    (write,) = plan_node(node(), know(health, None, None), NOW)
    condition = write.patch["status"]["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("Unknown", "EvidenceStale")
    assert condition["message"] == "a; b"
    (write,) = plan_node(conditioned("True", "Healthy", "w"), know(None, None, None), NOW)
    assert write.patch["status"]["conditions"][0]["reason"] == "ServiceUnreachable"


def test_a_long_message_is_cut() -> None:
    (write,) = plan_node(node(), known("degraded", "x" * 5000), NOW)
    assert len(write.patch["status"]["conditions"][0]["message"]) == 1024


# --- taints -------------------------------------------------------------------------------------


def test_a_taint_goes_beside_others_and_needs_the_version() -> None:
    other = {"key": "k", "effect": "NoExecute", "timeAdded": "t", "later": "field"}
    (write,) = plan_node(node(spec={"taints": [other]}), known(actions={"n1": drain()}), NOW)
    assert write.patch == {
        "metadata": {"resourceVersion": "7", "annotations": {ACTION_NOTE: "a1"}},
        "spec": {"taints": [other, OURS]},
    }
    assert (write.urgency, write.taints, write.is_status) == (Urgency.TAINT, "a1", False)


def test_a_taint_that_is_right_stays_and_one_that_is_not_is_set_right() -> None:
    assert plan_node(tainted(), known(actions={"n1": drain()}), NOW) == []
    (write,) = plan_node(tainted(), known(actions={"n1": drain(hold="out")}), NOW)
    assert write.patch["spec"]["taints"] == [{**OURS, "value": "out"}]
    assert write.taints == "", "it is tainted already"
    (write,) = plan_node(tainted("old"), known(actions={"n1": drain()}), NOW)
    assert write.patch["metadata"]["annotations"] == {ACTION_NOTE: "a1"}


def test_only_our_own_taint_is_removed() -> None:
    other = {"key": "fabricscope.io/unhealthy", "effect": "NoExecute"}
    (write,) = plan_node(tainted("a1", other), known(actions={}), NOW)
    assert write.patch["spec"]["taints"] == [other]
    assert write.patch["metadata"]["annotations"] == {ACTION_NOTE: None}
    assert write.reports[0].action == "a1"
    by_hand = node(spec={"taints": [OURS]})
    assert plan_node(by_hand, known(actions={}), NOW) == []
    assert plan_node(by_hand, known(actions={"n1": drain()}), NOW) == []


def test_on_doubt_no_taint_is_touched() -> None:
    assert plan_node(tainted(), known(actions=None), NOW) == []
    assert standing_drains(None) is None
    assert standing_drains(Actions([drain()], "stale")) is None
    assert standing_drains(Actions([drain()], "fresh", next="a1")) is None, "not all of it"


def test_only_standing_drains_count_and_the_strictest_of_them() -> None:
    actions = [
        drain("a3"),
        drain("a2", hold="out"),
        drain("a1"),
        drain("b", "n2", kind="return"),
        drain("c", "n3", state="proposed"),
    ]
    found = standing_drains(Actions(actions, "fresh"))
    assert found is not None
    assert {host: action.id for host, action in found.items()} == {"n1": "a2"}


def test_what_was_done_and_not_told_is_told() -> None:
    told = drain(applied=(Applied("kubernetes", "done"),))
    failed = drain(applied=(Applied("kubernetes", "failed"), Applied("slurm", "done")))

    def reports(action: Action) -> list[str]:
        plan = plan_fleet([tainted()], known(actions={"n1": action}), NOW, 1.0)
        return [report.outcome for report in plan.reports]

    assert (reports(told), reports(failed), reports(drain())) == ([], ["done"], ["done"])


def test_the_share_holds_for_new_taints_and_one_is_always_allowed() -> None:
    nodes = [node(f"n{number}") for number in range(10)]
    actions = {each.name: drain(f"a-{each.name}", each.name) for each in nodes}

    def count(share: float, *more: Node) -> int:
        plan = plan_fleet([*nodes, *more], known(actions=actions), NOW, share)
        return sum(1 for write in plan.changes if write.taints)

    assert [count(share) for share in (0.01, 0.1, 0.2, 0.55, 1.0)] == [1, 1, 2, 5, 10]
    already = msgspec.structs.replace(tainted("x"), metadata=tainted("x").metadata)
    assert count(0.2, already) == 1


# --- labels and order ---------------------------------------------------------------------------


def test_labels_and_taint_are_one_write() -> None:
    labels = {"n1": {"topology.fabricscope.io/pod": "leaf1"}}
    (write,) = plan_node(node(), known(actions={"n1": drain()}, labels=labels), NOW)
    assert write.patch["metadata"]["labels"] == labels["n1"]
    assert "taints" in write.patch["spec"]
    (alone,) = plan_node(node(), known(labels=labels), NOW)
    assert alone.patch == {"metadata": {"labels": labels["n1"]}}, "no version: labels are merged"


def test_a_service_cannot_set_labels_of_others() -> None:
    hostile = {"n1": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/os": "windows"}}
    assert plan_node(node(), known(labels=hostile), NOW) == []


def test_the_most_urgent_comes_first() -> None:
    health = [HostHealth(name, "degraded", ("w",)) for name in ("n1", "n2")]
    everything = Known(
        hosts={each.host: each for each in health},
        actions={"n3": drain("a3", "n3")},
        labels={"n2": {"topology.fabricscope.io/pod": "leaf1"}},
    )
    nodes = [conditioned("False", "Degraded", "w", "x"), node("n2"), node("n3")]
    plan = plan_fleet([*nodes, renamed(tainted(), "n4")], everything, NOW, 1.0)
    assert [(write.node, write.urgency) for write in plan.changes] == [
        ("n3", Urgency.TAINT),
        ("n4", Urgency.RETURN),
        ("n2", Urgency.CONDITION),
        ("n2", Urgency.LABELS),
        ("n1", Urgency.HEARTBEAT),
    ]


def renamed(one: Node, name: str) -> Node:
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, name=name))
