"""`/v1/kubernetes`: the scheduler's extender, and the leaves of nodes as labels.

How to point a scheduler here: docs/how-to/use-with-kubernetes.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from api.base.errors import Problem
from api.base.limits import PLACEMENTS_WAITING_MAX
from api.fleet.health.answers import Fleet
from api.fleet.kubernetes.extender import (
    Asked,
    FilterOut,
    NotAsked,
    PriorityOut,
    filter_nodes,
    prioritize,
    read_hosts,
    read_question,
)
from api.fleet.kubernetes.labels import labels_of
from api.fleet.placement.floors import answer as place_job
from api.fleet.placement.model import Ask, CannotPlace
from api.http.context import Context, Parts
from api.http.routes.shared.answers import JSON, answer, documented, inline_schema
from api.http.routes.shared.bodies import read_body
from collector.contract.errors import FabricscopeError

router = APIRouter(tags=["kubernetes"])

PROTOCOL = "kubernetes"

_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "ExtenderArgs of k8s.io/kube-scheduler/extender/v1: Pod, and NodeNames (with"
        " `nodeCacheCapable: true`) or Nodes. Names of fields in any case.",
        "content": {
            JSON: {
                "schema": {
                    "type": "object",
                    "properties": {
                        "Pod": {"type": "object"},
                        "NodeNames": {"type": "array", "items": {"type": "string"}},
                        "Nodes": {"type": "object"},
                    },
                }
            }
        },
    }
}
_FILTERED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "Nodes": {"type": ["object", "null"]},
        "NodeNames": {"type": ["array", "null"], "items": {"type": "string"}},
        "FailedNodes": {"type": "object", "additionalProperties": {"type": "string"}},
        "FailedAndUnresolvableNodes": {
            "type": "object",
            "additionalProperties": {"type": "string"},
        },
        "Error": {"type": "string"},
    },
}


async def read_asked(request: Request, parts: Context) -> Asked:
    """NotAsked if the body is no request, and counted where it hit a bound."""
    with contextlib.ExitStack() as held:
        body = await read_body(request, parts.ingest, held)
        try:
            return read_question(body)
        except NotAsked as error:
            if error.rule:
                parts.metrics.refuse(PROTOCOL, {error.rule: 1})
            raise


@router.post(
    "/v1/kubernetes/filter",
    summary="kube-scheduler's extender: which nodes may a pod run on",
    response_class=Response,
    responses={
        200: {
            "description": "ExtenderFilterResult. What is wrong is in `Error`: of any other status"
            " the scheduler shows only the number.",
            "content": {JSON: {"schema": _FILTERED}},
        }
    },
    openapi_extra=_BODY,
)
async def filter_verb(request: Request, parts: Parts) -> Response:
    """Refuses nodes that are draining or out, and states that the pod's annotation avoids.

    `fabricscope.io/avoid: degraded,suspect` makes a pod wait instead. Nodes of which nothing is
    known pass; on doubt (stale evidence) only holds refuse.
    """
    try:
        asked = await read_asked(request, parts)
    except NotAsked as error:
        return answer(FilterOut(error=f"fabricscope: {error}"))
    return answer(filter_nodes(asked, await parts.health.latest()))


@router.post(
    "/v1/kubernetes/prioritize",
    summary="kube-scheduler's extender: how good is each node for a pod",
    response_class=Response,
    responses={
        200: {
            "description": "HostPriorityList: a score of 0 to 10 for every node.",
            "content": {JSON: {"schema": {"type": "array", "items": inline_schema(PriorityOut)}}},
        }
    },
    openapi_extra=_BODY,
)
async def prioritize_verb(request: Request, parts: Parts) -> Response:
    """10 is a healthy host; risk and a troubled past cost; suspect at most 6, degraded at most 2.

    A node of which nothing is known has 5. On doubt all nodes without a hold are equal. With
    `fabricscope.io/hosts: "8"` on its pods, a job's hosts are chosen together, as `/v1/placement`
    does, and all others have 4 at most.
    """
    try:
        asked = await read_asked(request, parts)
        size = read_hosts(asked.annotations)
    except NotAsked as error:
        raise Problem(422, "not ExtenderArgs", str(error)) from error
    fleet = await parts.health.latest()
    chosen = None
    if size and asked.job and fleet is not None and not fleet.stale:
        chosen = await choose_together(parts, fleet, asked, size)
    scores = prioritize(asked, fleet, chosen)
    return Response(msgspec.json.encode(scores), media_type=JSON)


async def choose_together(
    parts: Context, fleet: Fleet, asked: Asked, size: int
) -> frozenset[str] | None:
    """The hosts for a pod's job as a whole; None where none can be chosen now."""

    async def choose(size: int, among: Collection[str]) -> Sequence[str]:
        ask = Ask(size=size, candidates=tuple(name for name in among if name in fleet.hosts))
        try:
            known = await parts.floors.latest()
            placed = await parts.queues.placements.take(
                lambda: place_job(known, fleet, ask),
                "PLACEMENTS_WAITING_MAX",
                PLACEMENTS_WAITING_MAX,
            )
        except (CannotPlace, FabricscopeError):
            # Pods must not wait for advice.
            return ()
        return placed.sets[0].hosts if placed.sets else ()

    return await parts.gangs.hosts_for(asked.job, size, asked.names, choose)


class NodeLabels(msgspec.Struct, frozen=True, kw_only=True):
    """A host and the labels that its node should have."""

    host: str
    labels: dict[str, str]


class LabelsOut(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts of which a cable to a leaf is known, by name."""

    items: Sequence[NodeLabels]


@router.get(
    "/v1/kubernetes/labels",
    summary="Where each host hangs, as labels of Kubernetes' nodes",
    **documented(LabelsOut, "Labels by host."),
)
async def labels(parts: Parts) -> Response:
    """`topology.fabricscope.io/pod`, `leaf` and `rail-0`…: `fabricscope kubernetes` sets them."""
    return answer(await asyncio.to_thread(show_labels, parts))


def show_labels(parts: Context) -> LabelsOut:
    found = labels_of(parts.topologies.at(None).topology)
    return LabelsOut(items=[NodeLabels(host=host, labels=found[host]) for host in found])
