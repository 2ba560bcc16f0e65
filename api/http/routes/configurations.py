"""`/v1/configurations`: roll a configuration out to agents, watch it, stop it, take it back."""

from __future__ import annotations

import asyncio
import datetime as dt
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Request, Response

from api.base.errors import Problem, decode_json
from api.base.limits import COMMENT_CHARS_MAX, NAME_CHARS_MAX, PAGE_DEFAULT
from api.base.rollout_limits import (
    CONFIGURATION_CHECK_SECONDS_MAX,
    ROLLOUT_SHARES_MAX,
    ROLLOUT_TRIAL_SECONDS_MAX,
)
from api.data.ingest.commit import event_rows
from api.data.inventory.health import unix_ns
from api.data.inventory.rollout_model import (
    AgentConfiguration,
    Configuration,
    Rollout,
    RolloutState,
    Version,
)
from api.data.rollouts.orders import Plan, check_shares, pushed, resumed, stopped, taken_back
from api.data.rollouts.stages import HostState, Tally, held_by, state_of
from api.http.context import Context, Parts
from api.http.peers import ROLLOUTS
from api.http.routes.shared.answers import BUSY, CONFLICT, answer, documented
from api.http.routes.shared.bodies import receive
from api.http.routes.shared.configurations import VersionNumber, find_configuration
from api.http.routes.shared.paging import After, Limit
from api.http.tokens.guard import signed
from collector.contract.identity import printable
from collector.contract.model import Event
from collector.contract.rollout import DOCUMENT_BYTES_MAX, VERSION_MAX, digest_of

router = APIRouter(tags=["configurations"])

NOT_ONE = "not a configuration"
NAMED_MAX = 100
"""Agents that are named in one answer; the page of agents has all."""
CHECK = [sys.executable, "-P", "-m", "collector.agent.rollout.check"]
"""-P: what lies in the folder that the service was started in is no module of ours."""
MALFORMED = (1,)

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Words = Annotated[str, msgspec.Meta(max_length=COMMENT_CHARS_MAX)]
Shares = Annotated[list[float], msgspec.Meta(min_length=1, max_length=ROLLOUT_SHARES_MAX)]
FailuresMax = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Hex = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")]


class ConfigurationAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a push. `signature` is over the next version, which `version` then names."""

    document: Annotated[str, msgspec.Meta(min_length=1)]
    """TOML: what agents may take from outside (docs/how-to/roll-out-a-configuration.md)."""
    by: Name
    why: Words = ""
    sha256: Hex = ""
    """Of the document's bytes; left out: not compared."""
    signature: Hex = ""
    """HMAC-SHA256 by a key that agents hold, for those that require one."""
    version: Annotated[int, msgspec.Meta(ge=1, le=VERSION_MAX)] | None = None
    """The number that it must get; left out: the next one."""
    shares: Shares = msgspec.field(default_factory=lambda: [5.0, 25.0, 100.0])
    """Percent of the agents that take part, one after the other."""
    trial_seconds: Annotated[float, msgspec.Meta(ge=10, le=ROLLOUT_TRIAL_SECONDS_MAX)] = 600.0
    """How long each agent tries it before it counts as good there."""
    failures_max: FailuresMax = 1
    """So many agents that go back stop the roll-out."""


class Ordered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of an order: who gives it and why."""

    by: Name
    why: Words = ""


class ResumeAsked(Ordered, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a resume. What is left out stays as it is."""

    shares: Shares | None = None
    failures_max: FailuresMax | None = None


class VersionOut(msgspec.Struct, frozen=True, kw_only=True):
    """A version, who pushed it, and where its roll-out stands."""

    version: int
    sha256: str
    is_signed: bool
    by: str
    why: str
    at: dt.datetime
    rollout: Rollout

    @classmethod
    def of(cls, version: Version) -> VersionOut:
        return cls(
            version=version.version,
            sha256=version.sha256,
            is_signed=bool(version.signature),
            by=version.by,
            why=version.why,
            at=version.at,
            rollout=version.rollout,
        )


class VersionsOut(msgspec.Struct, frozen=True, kw_only=True):
    """Versions, the newest first; its roll-out is the one that counts."""

    items: Sequence[VersionOut]
    next: str | None


class AgentOut(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that takes part: what it runs, and how far it is with the latest version."""

    agent: str
    state: HostState | None
    """Null: nothing was pushed yet."""
    version: int
    """0: its own file alone."""
    trying: int | None
    failed: int | None
    detail: str
    reports: bool
    at: dt.datetime


class AgentsOut(msgspec.Struct, frozen=True, kw_only=True):
    """Agents that take part, by name."""

    items: Sequence[AgentOut]
    next: str | None


class ConfigurationOut(msgspec.Struct, frozen=True, kw_only=True):
    """A version with its document; of the latest one also how far agents are."""

    version: VersionOut
    document: str
    hosts: dict[str, int]
    """Agents by state; empty for a version that is not the latest."""
    waits_for: str
    """Why it does not go on, while it rolls; empty: nothing holds it."""
    failed: Sequence[AgentOut]
    silent: Sequence[str]
    """Have it and do not report any more."""


@router.post(
    "/v1/configurations",
    summary="Roll a configuration out to agents",
    **documented(
        VersionOut,
        "It is kept, and its first share is told with the agents' next batches.",
        status=201,
        body=ConfigurationAsked,
        others={**CONFLICT, **BUSY},
    ),
)
async def push(request: Request, parts: Parts) -> Response:
    """Refused unless an agent of this release could use it.

    Agents take part that say so themselves (`[configuration] from_service = true`); each verifies,
    tries and keeps it, or goes back by itself.
    """
    asked = decode_json(await receive(request, parts), ConfigurationAsked, NOT_ONE)
    check_shares(asked.shares)
    try:
        document = asked.document.encode()
        await asyncio.to_thread(check_push, asked, document)
        latest = await asyncio.to_thread(keep, parts, asked, document, signed(request, asked.by))
    except UnicodeEncodeError as error:
        raise Problem(422, NOT_ONE, f"the document is no text: {error.reason}") from error
    except Problem as problem:
        parts.metrics.configurations_refused.labels(problem.body.rule or "busy").inc()
        raise
    await tell(parts)
    made = answer(VersionOut.of(latest))
    made.status_code = 201
    return made


def check_push(asked: ConfigurationAsked, document: bytes) -> None:
    if len(document) > DOCUMENT_BYTES_MAX:
        why = f"it has {len(document)} bytes; DOCUMENT_BYTES_MAX is {DOCUMENT_BYTES_MAX}"
        raise Problem(413, "too large", why, rule="DOCUMENT_BYTES_MAX")
    if asked.sha256 not in {"", digest_of(document)}:
        why = f"its SHA-256 is {digest_of(document)}, not {asked.sha256}: it changed on its way"
        raise Problem(422, NOT_ONE, why, rule="sha256")
    if asked.signature and asked.version is None:
        raise Problem(422, NOT_ONE, "a signature is over a version: give it, too", rule="version")
    try:
        done = subprocess.run(  # noqa: S603 - ourselves; the document comes by standard input
            CHECK,
            input=document,
            capture_output=True,
            check=False,
            timeout=CONFIGURATION_CHECK_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Problem(503, "not checked", f"the agent's reader did not answer: {error}") from error
    if done.returncode == 0:
        return
    said = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode not in MALFORMED or not said:
        raise Problem(503, "not checked", "the agent's reader broke; see the service's log")
    raise Problem(422, NOT_ONE, printable(said), rule="invalid")


def keep(parts: Context, asked: ConfigurationAsked, document: bytes, by: str) -> Version:
    tables, now = parts.inventory.rollouts, parts.now()
    plan = Plan(
        shares=asked.shares, failures_max=asked.failures_max, trial_seconds=asked.trial_seconds
    )
    rollout = pushed(tables.latest(), plan, now, by)
    if asked.version not in {None, rollout.version}:
        why = f"the next version is {rollout.version}, not {asked.version}; sign that one"
        raise Problem(409, "another version", why, rule="version")
    sha256 = digest_of(document)
    record(parts, "pushed", rollout, by, asked.why, sha256=sha256)
    made = Configuration(
        version=rollout.version,
        sha256=sha256,
        signature=asked.signature,
        document=document,
        by=by,
        why=printable(asked.why),
        at=now,
    )
    if not tables.push(made, rollout):
        raise changed_meanwhile()
    return find_latest(parts)


@router.get(
    "/v1/configurations",
    summary="Configurations that were pushed",
    **documented(VersionsOut, "A page of them, the newest first."),
)
async def versions(parts: Parts, limit: Limit = PAGE_DEFAULT, after: After = None) -> Response:
    """The first one is what counts; agents outside its share run its `base`."""
    before = int(after) if after and after.isascii() and after.isdigit() else None
    before = min(before, VERSION_MAX) if before is not None else None
    found = await asyncio.to_thread(parts.inventory.rollouts.versions, before, limit)
    items = [VersionOut.of(each) for each in found]
    following = str(items[-1].version) if len(items) == limit else None
    return answer(VersionsOut(items=items, next=following))


@router.get(
    "/v1/agents/configurations",
    summary="What agents run",
    **documented(AgentsOut, "A page of the agents that take part."),
)
async def agents(parts: Parts, limit: Limit = PAGE_DEFAULT, after: After = None) -> Response:
    """By name. An agent that does not take part is not here."""

    def ask() -> AgentsOut:
        tables = parts.inventory.rollouts
        found, latest, reporting = (
            tables.page(after, limit),
            tables.latest(),
            parts.rollouts.reporting(),
        )
        rollout = latest.rollout if latest is not None else None
        items = [shown(each, rollout, reports=each.agent in reporting) for each in found]
        return AgentsOut(items=items, next=items[-1].agent if len(items) == limit else None)

    return answer(await asyncio.to_thread(ask))


@router.get(
    "/v1/configurations/{version}",
    summary="A configuration and how far it is",
    **documented(ConfigurationOut, "The version, its document and its agents."),
)
async def configuration(version: VersionNumber, parts: Parts) -> Response:
    """Of the latest version with the agents that failed, and what it waits for."""
    return answer(await asyncio.to_thread(describe, parts, version))


def describe(parts: Context, version: int) -> ConfigurationOut:
    found = find_configuration(parts, version)
    kept = next(iter(parts.inventory.rollouts.versions(version + 1, 1)), None)
    if kept is None or kept.version != version:
        raise changed_meanwhile()
    latest = parts.inventory.rollouts.latest()
    tally = None
    if latest is not None and latest.version == version:
        tally = parts.rollouts.tally_of(kept.rollout)
    rolls = tally is not None and kept.rollout.state is RolloutState.ROLLING
    return ConfigurationOut(
        version=VersionOut.of(kept),
        document=found.document.decode("utf-8", "replace"),
        hosts={state.value: count for state, count in tally.counts.items()} if tally else {},
        waits_for=held_by(kept.rollout, tally, parts.now()) if rolls and tally else "",
        failed=failed_of(tally, kept.rollout) if tally else [],
        silent=tally.silent[:NAMED_MAX] if tally else [],
    )


def failed_of(tally: Tally, rollout: Rollout) -> list[AgentOut]:
    return [shown(each, rollout, reports=True) for each in tally.failed[:NAMED_MAX]]


def shown(agent: AgentConfiguration, rollout: Rollout | None, *, reports: bool) -> AgentOut:
    return AgentOut(
        agent=agent.agent,
        state=state_of(rollout, agent, reports=reports) if rollout is not None else None,
        version=agent.good,
        trying=agent.trying,
        failed=agent.failed,
        detail=agent.detail,
        reports=reports,
        at=agent.at,
    )


# --- orders -------------------------------------------------------------------------------------


@router.post(
    "/v1/configurations/{version}/stop",
    summary="Stop the roll-out",
    **documented(VersionOut, "It is stopped.", body=Ordered, others=CONFLICT),
)
async def stop(version: VersionNumber, request: Request, parts: Parts) -> Response:
    """No other agent gets the version; those that have it keep it."""
    return await obey(version, request, parts, "stopped", stopped)


@router.post(
    "/v1/configurations/{version}/back",
    summary="Take the latest configuration back",
    **documented(VersionOut, "It is taken back.", body=Ordered, others=CONFLICT),
)
async def back(version: VersionNumber, request: Request, parts: Parts) -> Response:
    """All agents go back to what was done before, with their next batches and without a trial."""
    return await obey(version, request, parts, "taken_back", taken_back)


@router.post(
    "/v1/configurations/{version}/resume",
    summary="Let the roll-out go on",
    **documented(VersionOut, "It goes on.", body=ResumeAsked, others=CONFLICT),
)
async def resume(version: VersionNumber, request: Request, parts: Parts) -> Response:
    """After a stop, or with the next shares. Agents that failed do not try the version again."""
    order = decode_json(await receive(request, parts), ResumeAsked, "not an order")
    by, why = signed(request, order.by), printable(order.why)
    if order.shares is not None:
        check_shares(order.shares)

    def go_on(old: Rollout, now: dt.datetime) -> Rollout:
        return resumed(
            old,
            why,
            now,
            by,
            shares=order.shares,
            failures_max=order.failures_max,
            failed=len(parts.rollouts.tally_of(old).failed),
        )

    return await change(parts, version, "resumed", by, why, go_on)


async def obey(
    version: int,
    request: Request,
    parts: Context,
    does: str,
    order: Callable[[Rollout, str, dt.datetime, str], Rollout],
) -> Response:
    """Take an order that has no words of its own but who gives it and why."""
    asked = decode_json(await receive(request, parts), Ordered, "not an order")
    by, why = signed(request, asked.by), printable(asked.why)
    return await change(parts, version, does, by, why, lambda old, now: order(old, why, now, by))


async def change(
    parts: Context,
    version: int,
    does: str,
    by: str,
    why: str,
    make: Callable[[Rollout, dt.datetime], Rollout],
) -> Response:
    """Change the latest roll-out, with its record first: what cannot be recorded is not done."""

    def write() -> Version:
        find_configuration(parts, version)
        known = find_latest(parts)
        if known.version != version:
            why_not = f"configuration {known.version} is the latest, and the one that counts"
            raise Problem(409, "not the latest", why_not)
        rollout = make(known.rollout, parts.now())
        record(parts, does, rollout, by, why)
        if not parts.inventory.rollouts.change(known, rollout):
            raise changed_meanwhile()
        return find_latest(parts)

    latest = await asyncio.to_thread(write)
    await tell(parts)
    return answer(VersionOut.of(latest))


def record(
    parts: Context, does: str, rollout: Rollout, by: str, why: str, *, sha256: str = ""
) -> None:
    """An event of the kind `configuration_…` says who did it (`/v1/events`)."""
    attributes = {
        "by": by,
        "version": str(rollout.version),
        "shares": str(rollout.shares),
        **({"why": printable(why)} if why else {}),
        **({"sha256": sha256} if sha256 else {}),
    }
    event = Event(
        kind=f"configuration_{does}",
        time_ns=unix_ns(parts.now()),
        labels={},
        message=f"configuration {rollout.version} was {does.replace('_', ' ')} by {by}",
        attributes=attributes,
    )
    parts.store.insert_arrow("events", event_rows([event]))


async def tell(parts: Context) -> None:
    """Let all processes know at once: an agent's next batch may meet any of them."""
    await asyncio.to_thread(parts.rollouts.look)
    await parts.duties.peers.tell(ROLLOUTS)


def find_latest(parts: Context) -> Version:
    latest = parts.inventory.rollouts.latest()
    if latest is None:
        raise Problem(404, "no such configuration", "no configuration was ever pushed")
    return latest


def changed_meanwhile() -> Problem:
    return Problem(409, "changed meanwhile", "the roll-out has just been changed; look, and repeat")
