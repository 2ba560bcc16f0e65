"""`/v1/agents/{agent}/probe-targets`: what an agent fetches when a receipt names another list."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.base.errors import Problem
from api.http.context import Parts
from api.http.routes.shared.answers import inline_schema
from api.http.tokens.guard import caller_of
from collector.contract.probes import ProbeTargets, digest_of, encode_targets

router = APIRouter(tags=["fabric"])


@router.get(
    "/v1/agents/{agent}/probe-targets",
    summary="What an agent should probe",
    response_class=Response,
    responses={
        200: {
            "description": "Rails of other hosts. `ETag` is the name in the agent's receipts.",
            "content": {"application/json": {"schema": inline_schema(ProbeTargets)}},
        }
    },
)
async def probe_targets(agent: str, request: Request, parts: Parts) -> Response:
    """For agents, with their own token; a list changes only where hosts come or go.

    404: the service hands out none (`probe_mesh`), or this agent has not said where its rails are.
    """
    if not caller_of(request).hosts.allow([agent]):
        why = f"this token is not for the host {agent[:80]!r}"
        raise Problem(403, "not allowed", why)
    found = parts.probe_targets.targets(agent)
    if found is None:
        raise Problem(404, "no such list", f"there are no probe targets for {agent[:80]!r}")
    body = encode_targets(found)
    tag = {"ETag": f'"{digest_of(body)}"'}
    return Response(body, media_type="application/json", headers=tag)
