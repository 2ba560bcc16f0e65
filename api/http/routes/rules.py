"""Rules and alerts as Prometheus answers them, and the state of each rule file."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from fastapi import APIRouter, Response

from api.base.times import rfc3339
from api.http.context import Parts
from api.http.routes.shared.answers import answer, copied, documented
from api.http.routes.shared.prometheus_form import Form, Parameters, endpoint, invalid, success
from api.oncall.rules.answer import UnknownToken, Wanted
from api.oncall.rules.shelf import FileState, RuleFile
from api.promql.errors import bad_data
from collector.contract.units import NS

router = APIRouter(tags=["prometheus"])

TRUTHS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False", ""), False),
}
"""What Go reads as a truth value."""


@endpoint(
    router,
    "/api/v1/rules",
    "Rules",
    "type",
    "rule_name[]",
    "rule_group[]",
    "file[]",
    "match[]",
    "exclude_alerts",
    "group_limit",
    "group_next_token",
)
async def rules(parts: Parts, form: Parameters) -> Response:
    """Groups of rules, how their last evaluation went, and the alerts that stand."""
    wanted = read_wanted(form)
    try:
        return success(await asyncio.to_thread(parts.rules.rules, wanted))
    except UnknownToken as error:
        shown = wanted.after[:64]
        why = f"invalid group_next_token '{shown}'. were rule groups changed?"
        raise bad_data(why) from error


def read_wanted(form: Form) -> Wanted:
    kind = form.text("type").lower()
    if kind not in {"", "alert", "record"}:
        raise invalid("type", f'not supported value "{kind[:64]}"')
    excluded = TRUTHS.get(form.text("exclude_alerts"))
    if excluded is None:
        raise invalid("exclude_alerts", "error converting exclude_alerts: write true or false")
    limit, after = form.count("group_limit", 0), form.text("group_next_token")
    if limit < 0:
        raise invalid("group_limit", "group_limit needs to be greater than 0")
    if after and not limit:
        raise invalid("group_limit", "group_limit needs to be set in order to paginate over groups")
    return Wanted(
        kind=kind,
        names=frozenset(form.texts("rule_name[]")),
        groups=frozenset(form.texts("rule_group[]")),
        files=frozenset(form.texts("file[]")),
        matching=form.selectors(),
        with_alerts=not excluded,
        limit=limit,
        after=after,
    )


@endpoint(router, "/api/v1/alerts", "Alerts")
async def alerts(parts: Parts) -> Response:
    """All alerts that are pending or firing."""
    return success({"alerts": await asyncio.to_thread(parts.rules.alerts)})


class RuleFileOut(msgspec.Struct, frozen=True, kw_only=True):
    """A rule file. ``loaded_since``: when what is evaluated of it was read; null: never."""

    name: str
    state: FileState
    error: str
    loaded_since: str | None
    groups: int
    rules: int

    @classmethod
    def of(cls, file: RuleFile) -> RuleFileOut:
        return copied(
            cls,
            file,
            loaded_since=None if file.loaded_s is None else rfc3339(round(file.loaded_s * NS)),
            groups=len(file.groups),
            rules=sum(len(group.rules) for group in file.groups),
        )


class RuleFilesOut(msgspec.Struct, frozen=True, kw_only=True):
    """All rule files of this process, the pack's among them."""

    items: Sequence[RuleFileOut]


@router.get(
    "/v1/rules/files",
    summary="Rule files, and what is wrong with them",
    **documented(RuleFilesOut, "`kept` and `refused` files have the reason in `error`."),
)
async def rule_files(parts: Parts) -> Response:
    """Files of the pack and of `rules_dir`; a bad file's last valid rules stay in force."""
    return answer(RuleFilesOut(items=[RuleFileOut.of(each) for each in parts.rules.files()]))
