"""The conditions, taints and labels that nodes should have. Pure: no clock, no network.

- A condition `FabricHealthy` for each host that the service knows, with the host's health.
- A taint `fabricscope.io/unhealthy:NoSchedule` for each standing action: nothing new begins there,
  and nothing that runs is evicted. An annotation names the action: only what has it is ours to
  take away.
- Labels with the leaves of the host.

On doubt conditions become `Unknown`, and taints and labels stay as they are.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from api.remote.answers import Action, Actions, FleetHealth, HostHealth, Report
from api.remote.executor import Plan, Share
from api.remote.kubernetes.objects import Condition, Json, Node
from collector.contract.node_labels import is_ours, label_value

EXECUTOR = "kubernetes"
CONDITION = "FabricHealthy"
TAINT_KEY = "fabricscope.io/unhealthy"
TAINT_EFFECT = "NoSchedule"
ACTION_NOTE = "fabricscope.io/action"
"""The annotation that names the action behind our taint."""
HEARTBEAT_SECONDS = 600.0
"""An unchanged condition is written again this often, so that operators see that the controller
looks. The kubelet's are as old as five minutes; 5,000 nodes make eight writes a second."""
MESSAGE_CHARS_MAX = 1_024

CONDITIONS = {
    "healthy": ("True", "Healthy"),
    "suspect": ("Unknown", "Suspect"),
    "degraded": ("False", "Degraded"),
    "draining": ("False", "Draining"),
    "out": ("False", "Out"),
}
"""Status and reason of each state. Suspect is weak evidence, or silence: not known."""
WELL = "nothing that weighs is known against this host"
SILENT = "Fabricscope's service has not answered for a minute: this host's state is not known"
UNHEARD = "Fabricscope has never heard of a host of this name, or not for a week"


class Urgency(enum.IntEnum):
    """The order of writes."""

    TAINT = 0
    RETURN = 1
    CONDITION = 2
    LABELS = 3
    HEARTBEAT = 4


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The service's answers, and what of them cannot be trusted."""

    hosts: Mapping[str, HostHealth] = {}
    health_doubt: tuple[str, str] | None = None
    """Reason (one word) and sentence, if health is not to be trusted."""
    actions: Mapping[str, Action] | None = None
    """Standing drains by host; None on doubt."""
    labels: Mapping[str, Mapping[str, str]] = {}


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one node."""

    node: str
    urgency: Urgency
    words: str
    patch: Json
    is_status: bool
    reports: tuple[Report, ...] = ()
    """Reports to the service once it is written."""
    taints: str = ""
    """The action for which a node is newly tainted."""


def know(
    health: FleetHealth | None,
    actions: Actions | None,
    labels: Mapping[str, Mapping[str, str]] | None,
) -> Known:
    """What the service's answers mean; None stands for one that is missing or too old."""
    doubt = None
    if health is None:
        doubt = ("ServiceUnreachable", SILENT)
    elif health.stale:
        doubt = ("EvidenceStale", "; ".join(health.stale))
    return Known(
        hosts={each.host: each for each in health.items} if health is not None else {},
        health_doubt=doubt,
        actions=standing_drains(actions),
        labels=labels or {},
    )


def standing_drains(actions: Actions | None) -> dict[str, Action] | None:
    """The drain that stands for each host, the strictest of several; None on doubt."""
    # An executor that knows only a part would return hosts that are held.
    if actions is None or actions.evidence != "fresh" or actions.next is not None:
        return None
    found: dict[str, Action] = {}
    # Out comes before draining; then the oldest name, whatever the order.
    for action in sorted(actions.actions, key=lambda each: (each.hold != "out", each.id)):
        if action.kind == "drain" and action.state == "standing":
            found.setdefault(action.host, action)
    return found


# --- the fleet ----------------------------------------------------------------------------------


def plan_fleet(
    nodes: Iterable[Node], known: Known, now: dt.datetime, share_max: float
) -> Plan[Write]:
    """What to write, never tainting more than this share of the nodes (but one, always)."""
    listed = sorted(nodes, key=lambda node: node.name)
    plan: Plan[Write] = Plan(changes=[])
    tainted = sum(1 for node in listed if our_taint(node) is not None)
    share = Share(share_max, nodes=len(listed), held=tainted, doing="tainted")
    for node in listed:
        planned = plan_node(node, known, now)
        new = next((write for write in planned if write.taints), None)
        if new is not None and (why := share.take()):
            words = f"{node.name}: {why}"
            plan.refused.append(words)
            plan.reports.append(Report(new.taints, "failed", words))
            planned = plan_node(node, msgspec.structs.replace(known, actions=None), now)
        plan.changes += planned
        plan.reports += already_done(node, known)
    plan.changes.sort(key=lambda write: write.urgency)
    return plan


def already_done(node: Node, known: Known) -> Iterable[Report]:
    """What we did before without reporting it to the service: we died in between."""
    action = (known.actions or {}).get(node.name)
    if action is None or our_taint(node) is None or node.annotations[ACTION_NOTE] != action.id:
        return
    if not any(each.executor == EXECUTOR and each.outcome == "done" for each in action.applied):
        yield Report(action.id, "done", f"node {node.name} has taint {TAINT_KEY}:{TAINT_EFFECT}")


# --- one node -----------------------------------------------------------------------------------


def plan_node(node: Node, known: Known, now: dt.datetime) -> list[Write]:
    writes = [plan_condition(node, known, now), plan_node_itself(node, known)]
    return [write for write in writes if write is not None]


def plan_condition(node: Node, known: Known, now: dt.datetime) -> Write | None:
    before = node.condition(CONDITION)
    wanted = wanted_condition(node.name, known, has_one=before is not None)
    if wanted is None:
        return None
    status, reason, message = wanted
    is_same = before is not None and (before.status, before.reason, before.message) == wanted
    if is_same and before is not None and not is_due(before, now):
        return None
    stamp = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    is_kept = before is not None and before.status == status and before.last_transition_time
    condition = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": before.last_transition_time if before and is_kept else stamp,
    }
    return Write(
        node=node.name,
        urgency=Urgency.HEARTBEAT if is_same else Urgency.CONDITION,
        words=f"{node.name}: condition {CONDITION} is {status} ({reason}): {message}",
        patch={"status": {"conditions": [condition]}},
        is_status=True,
    )


def wanted_condition(name: str, known: Known, *, has_one: bool) -> tuple[str, str, str] | None:
    """None: no condition of ours, as on nodes without a fabric, unknown to the service."""
    entry = known.hosts.get(name)
    if entry is None and not has_one:
        return None
    if known.health_doubt is not None:
        reason, words = known.health_doubt
        return "Unknown", reason, words[:MESSAGE_CHARS_MAX]
    if entry is None:
        return "Unknown", "NotReporting", UNHEARD
    status, reason = CONDITIONS.get(entry.state, ("Unknown", "StateUnknown"))
    message = "; ".join(entry.reasons) or (WELL if status == "True" else entry.state)
    return status, reason, message[:MESSAGE_CHARS_MAX]


def is_due(condition: Condition, now: dt.datetime) -> bool:
    """Whether a condition was not written for long, or at a time that is none."""
    try:
        written = dt.datetime.fromisoformat(condition.last_heartbeat_time or "")
        age_s = (now - written).total_seconds()
    except (ValueError, TypeError):
        return True
    return not 0 <= age_s < HEARTBEAT_SECONDS


def our_taint(node: Node) -> Json | None:
    if ACTION_NOTE not in node.annotations:
        return None
    return next((taint for taint in node.taints if has_our_name(taint)), None)


def has_our_name(taint: Json) -> bool:
    return taint.get("key") == TAINT_KEY and taint.get("effect") == TAINT_EFFECT


def plan_node_itself(node: Node, known: Known) -> Write | None:
    """Labels and taint in one write, if they are not as they should be."""
    labels = plan_labels(node, known)
    metadata: dict[str, Any] = {"labels": labels} if labels else {}
    words = [f"label {name}={value}" for name, value in labels.items() if value is not None]
    words += [f"label {name} removed" for name, value in labels.items() if value is None]
    if known.actions is None:
        return node_write(node, metadata, {}, words)
    action, ours = known.actions.get(node.name), our_taint(node)
    if action is not None:
        return taint_write(node, action, metadata, words)
    if ours is None:
        return node_write(node, metadata, {}, words)
    left = [taint for taint in node.taints if not has_our_name(taint)]
    metadata |= versioned(node, {ACTION_NOTE: None})
    words.append(f"taint {TAINT_KEY}:{TAINT_EFFECT} removed")
    report = Report(
        node.annotations[ACTION_NOTE],
        "done",
        f"node {node.name}: taint {TAINT_KEY}:{TAINT_EFFECT} removed",
    )
    write = node_write(node, metadata, {"taints": left}, words, Urgency.RETURN)
    return None if write is None else msgspec.structs.replace(write, reports=(report,))


def taint_write(
    node: Node, action: Action, metadata: dict[str, Any], words: list[str]
) -> Write | None:
    ours = our_taint(node)
    wanted = {"key": TAINT_KEY, "value": label_value(action.hold), "effect": TAINT_EFFECT}
    is_somebodys = ours is None and any(has_our_name(taint) for taint in node.taints)
    is_done = ours is not None and ours.get("value", "") == wanted["value"]
    if is_somebodys or (is_done and node.annotations[ACTION_NOTE] == action.id):
        # A taint that an operator set by hand is not ours to change, and does the same.
        return node_write(node, metadata, {}, words)
    others = [taint for taint in node.taints if not has_our_name(taint)]
    metadata |= versioned(node, {ACTION_NOTE: action.id})
    name = f"{TAINT_KEY}={wanted['value']}:{TAINT_EFFECT}"
    words.append(f"taint {name} for action {action.id} by {action.by}: {action.reason}")
    write = node_write(node, metadata, {"taints": [*others, wanted]}, words, Urgency.TAINT)
    if write is None:
        return None
    report = Report(action.id, "done", f"node {node.name}: taint {name} set")
    return msgspec.structs.replace(
        write, reports=(report,), taints=action.id if ours is None else ""
    )


def versioned(node: Node, annotations: dict[str, str | None]) -> dict[str, Any]:
    """For a write of taints: their list is replaced whole, so no other write may come between."""
    return {"resourceVersion": node.metadata.resource_version, "annotations": annotations}


def node_write(
    node: Node,
    metadata: dict[str, Any],
    spec: dict[str, Any],
    words: list[str],
    urgency: Urgency = Urgency.LABELS,
) -> Write | None:
    if not metadata and not spec:
        return None
    patch = {"metadata": metadata, **({"spec": spec} if spec else {})}
    summary = f"{node.name}: {', '.join(words)}"
    return Write(node=node.name, urgency=urgency, words=summary, patch=patch, is_status=False)


def plan_labels(node: Node, known: Known) -> dict[str, str | None]:
    """Labels to set, and (None) to remove; a host without known cables keeps its labels."""
    wanted = known.labels.get(node.name)
    if wanted is None:
        return {}
    old = {name: None for name in node.labels if is_ours(name) and name not in wanted}
    new = {name: value for name, value in wanted.items() if node.labels.get(name) != value}
    return {**old, **{name: value for name, value in new.items() if is_ours(name)}}
