"""Requests of kube-scheduler to an extender, and the answers. Pure.

The format is `k8s.io/kube-scheduler/extender/v1`. Its types have no JSON tags, so Go writes the
fields' own names (`NodeNames`) and reads them in any case; so do we. A pod is passed through as it
is: only its annotations are read.

On doubt no node is refused: measurements count only while the evidence is fresh. What an operator
has set (draining, out) counts always.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from alerts.health.model import HealthState
from api.base.limits import EXTENDER_NODES_MAX, NAME_CHARS_MAX
from api.fleet.health.answers import Fleet, HostEntry
from collector.contract.layers import unknown

SCORE_MAX = 10
"""`MaxExtenderPriority`; the scheduler multiplies it by the extender's weight, and by ten."""
SCORE_UNKNOWN = 5
"""Of a node from which nothing was ever heard: after those that are known to be well."""
SCORE_CEILINGS = {HealthState.SUSPECT: 6, HealthState.DEGRADED: 2}
"""Whatever the risk: a suspect host is used after healthy ones, a degraded one last."""
SCORE_ELSEWHERE = 4
"""Of a healthy host that is not among those chosen for a job as a whole, at most."""
HELD = frozenset({HealthState.DRAINING, HealthState.OUT})
"""Set by an operator or action: nothing new begins there."""
AVOIDABLE = (HealthState.DEGRADED, HealthState.SUSPECT)
AVOID = "fabricscope.io/avoid"
"""A pod's annotation: states that it would rather wait than run on, with commas between them."""


HOSTS = "fabricscope.io/hosts"
"""A pod's annotation: how many hosts its job needs, so that they are chosen together."""
JOB = "fabricscope.io/job"
"""A pod's annotation: which job it belongs to, where that is not who made the pod."""


class NotAsked(ValueError):  # noqa: N818 - reads as the statement it is
    """The body is no scheduler's request; the message names why, the rule which bound it hit."""

    def __init__(self, words: str, rule: str = "") -> None:
        super().__init__(words)
        self.rule = rule


class _Owner(msgspec.Struct):
    uid: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _Object(msgspec.Struct):
    """The fields of a pod or node that are read."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request: which of these nodes, for a pod with these annotations."""

    names: Sequence[str]
    annotations: Mapping[str, str]
    job: str = ""
    """By which pods of one job are known: an annotation, or who made the pod. Empty: none."""
    nodes: Sequence[msgspec.Raw] | None = None
    """The nodes as they came, in the order of ``names``, from a scheduler whose extender is not
    `nodeCacheCapable`: it wants them back whole."""


class NodesOut(msgspec.Struct, frozen=True):
    """A `v1.NodeList`."""

    items: Sequence[msgspec.Raw]


class FilterOut(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """`ExtenderFilterResult`."""

    nodes: NodesOut | None = None
    node_names: Sequence[str] | None = None
    failed_nodes: dict[str, str] = {}
    """Nodes on which preemption could help: this extender never decides that."""
    failed_and_unresolvable_nodes: dict[str, str] = {}
    """Nodes that are refused, and why: the scheduler shows it in the pod's events."""
    error: str = ""


class PriorityOut(msgspec.Struct, frozen=True, rename="pascal"):
    """`HostPriority`."""

    host: str
    score: int


def read_question(body: bytes) -> Asked:
    """NotAsked if the body is no request."""
    try:
        fields = {
            name.lower(): raw
            for name, raw in msgspec.json.decode(body, type=dict[str, msgspec.Raw]).items()
        }
        pod = msgspec.json.decode(fields.get("pod", b"{}"), type=_Object | None)
        names = msgspec.json.decode(fields.get("nodenames", b"null"), type=list[str] | None)
        listed = msgspec.json.decode(fields.get("nodes", b"null"), type=_NodeList | None)
        nodes = None if listed is None else listed.items or []
        if names is None:
            names = [
                msgspec.json.decode(node, type=_Object).metadata.name for node in (nodes or [])
            ]
        elif nodes is not None:
            raise NotAsked("it has Nodes and NodeNames; a scheduler sends one of them")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise NotAsked(f"it is no ExtenderArgs of kube-scheduler: {error}") from error
    if "nodes" not in fields and "nodenames" not in fields:
        raise NotAsked("it has neither NodeNames nor Nodes, so there is nothing to choose from")
    if len(names) > EXTENDER_NODES_MAX:
        words = f"it names {len(names)} nodes; EXTENDER_NODES_MAX is {EXTENDER_NODES_MAX}"
        raise NotAsked(words, rule="EXTENDER_NODES_MAX")
    metadata = pod.metadata if pod is not None else _Metadata()
    annotations = metadata.annotations or {}
    return Asked(names=names, annotations=annotations, job=job_of(metadata), nodes=nodes)


def job_of(metadata: _Metadata) -> str:
    """What all pods of a job have in common; empty if there is nothing."""
    owners = (each.uid for each in metadata.owner_references or () if each.controller)
    job = (metadata.annotations or {}).get(JOB, "") or next(owners, "")
    return f"{metadata.namespace}/{job}"[:NAME_CHARS_MAX] if job else ""


def read_hosts(annotations: Mapping[str, str]) -> int:
    """How many hosts a pod's job needs; 0 without the annotation, NotAsked if that is no number.

    >>> read_hosts({"fabricscope.io/hosts": "8"}), read_hosts({})
    (8, 0)
    """
    text = annotations.get(HOSTS, "")
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= EXTENDER_NODES_MAX):
        words = f"{text[:40]!r}; it must be a number of 1 to {EXTENDER_NODES_MAX}"
        raise NotAsked(f"annotation {HOSTS}: {words}")
    return int(text)


def filter_nodes(asked: Asked, fleet: Fleet | None) -> FilterOut:
    """Which nodes the pod may run on. ``fleet`` is None when the states of hosts are not known."""
    try:
        avoided = read_avoided(asked.annotations)
        # Only the filter can report to the pod's author what is wrong.
        read_hosts(asked.annotations)
    except NotAsked as error:
        return FilterOut(error=str(error))
    refused: dict[str, str] = {}
    kept: list[int] = []
    for place, name in enumerate(asked.names):
        why = refusal(name, fleet, avoided)
        if why:
            refused[name] = why
        else:
            kept.append(place)
    if asked.nodes is None:
        left = [asked.names[place] for place in kept]
        return FilterOut(node_names=left, failed_and_unresolvable_nodes=refused)
    nodes = NodesOut([asked.nodes[place] for place in kept])
    return FilterOut(nodes=nodes, failed_and_unresolvable_nodes=refused)


def read_avoided(annotations: Mapping[str, str]) -> frozenset[HealthState]:
    """The states that a pod would rather wait than run on; NotAsked if one is none.

    >>> sorted(read_avoided({"fabricscope.io/avoid": "degraded, suspect"}))
    [<HealthState.DEGRADED: 'degraded'>, <HealthState.SUSPECT: 'suspect'>]
    """
    words = [word.strip() for word in annotations.get(AVOID, "").split(",")]
    for word in words:
        if word and word not in AVOIDABLE:
            raise NotAsked(f"annotation {AVOID}: {unknown('state', word[:40], AVOIDABLE)}")
    return frozenset(HealthState(word) for word in words if word)


def refusal(name: str, fleet: Fleet | None, avoided: Iterable[HealthState]) -> str:
    """Why a pod should not run on a node; empty: nothing."""
    entry = fleet.hosts.get(name) if fleet is not None else None
    if fleet is None or entry is None:
        return ""
    is_refused = entry.state in HELD or (entry.state in avoided and not fleet.stale)
    return f"fabricscope: {entry.state}: {'; '.join(entry.reasons)}" if is_refused else ""


def prioritize(
    asked: Asked, fleet: Fleet | None, chosen: Container[str] | None = None
) -> list[PriorityOut]:
    """0 to SCORE_MAX; on doubt all nodes without a hold are equal. ``chosen``: for the job."""
    found = []
    for name in asked.names:
        entry = fleet.hosts.get(name) if fleet is not None else None
        worth = score(entry, is_sure=fleet is not None and not fleet.stale)
        is_elsewhere = chosen is not None and name not in chosen
        found.append(PriorityOut(name, min(worth, SCORE_ELSEWHERE) if is_elsewhere else worth))
    return found


def score(entry: HostEntry | None, *, is_sure: bool) -> int:
    if entry is not None and entry.state in HELD:
        return 0
    if not is_sure:
        return SCORE_MAX
    if entry is None:
        return SCORE_UNKNOWN
    # The past weighs half: a lemon that is well now is used, but after its peers.
    worth = (1 - entry.risk) * (1 - entry.lemon / 2)
    return min(round(SCORE_MAX * worth), SCORE_CEILINGS.get(entry.state, SCORE_MAX))
