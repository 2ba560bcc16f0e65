"""Flags and output of `fabricscope dashboards push` and `annotate`.

Apart from `cli`, which prints: output here goes to a function, so that tests can read it.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from collector.contract.errors import SettingsError
from collector.contract.layers import unknown
from dashboards.grafana.annotations import Marked, annotate, follow
from dashboards.grafana.boards import discover
from dashboards.grafana.classic import to_classic
from dashboards.grafana.client import Service
from dashboards.grafana.connection import Grafana, Target, check_url, read_token
from dashboards.grafana.failures import plain
from dashboards.grafana.push import FOLDER, UID_CHARS_MAX, Action, PushSettings, Report, Step, push

EXIT_FAILED = 1
"""Something is in conflict or was refused; the rest was done. (2: nothing could be done.)"""
EXIT_WOULD_CHANGE = 3
"""A dry run that found something to do, for pipelines."""

TOKEN_VARIABLE = "GRAFANA_TOKEN"  # noqa: S105 - the name of a variable
SERVICE_TOKEN_VARIABLE = "FABRICSCOPE_TOKEN"  # noqa: S105 - the name of a variable

FILE_BYTES_MAX = 16 << 20
"""A dashboard's file; ours have 100 kB. Grafana itself gets slow with a few megabytes."""
BOARDS_MAX = 200

_UID = re.compile(r"[A-Za-z0-9_-]+")
_SPAN = re.compile(r"(\d+)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

Write = Callable[[str], None]
Add = Callable[..., object]
"""`add_argument` of a parser."""


def add_target(add: Add) -> None:
    add("--grafana", required=True, metavar="URL", help="Grafana's address")
    add("--token", default="", help=f"of a service account; or {TOKEN_VARIABLE}")
    add("--token-file", default="", metavar="FILE", help="holds the token")
    add("--ca-file", default="", metavar="FILE", help="certificates to trust, PEM")
    words = f"holds the bearer token of the Fabricscope service; or {SERVICE_TOKEN_VARIABLE}"
    add("--service-token-file", default="", metavar="FILE", help=words)
    add("--dry-run", action="store_true", help="print changes, write none")


def add_only(add: Add) -> None:
    add("--only", action="append", default=[], metavar="NAME", help="this board; repeatable")


def add_push(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_target(add)
    words = "Fabricscope as Grafana's server reaches it: makes the data source"
    add("--service", default="", metavar="URL", help=words)
    add("--folder", default=FOLDER, metavar="TITLE", help="default %(default)s")
    words = "name of the data source to make; without --service, of one that is there"
    add("--datasource", default="", metavar="NAME", help=words)
    add_only(add)
    words = "push the *.json of this folder instead of our own boards"
    add("--from", dest="source", type=Path, metavar="DIR", help=words)
    add("--overwrite", action="store_true", help="take ours where people changed something")
    add("--prune", action="store_true", help="remove boards of ours that are no longer made")
    words = "send the service's token also if Grafana has one"
    add("--renew-service-token", action="store_true", help=words)
    add("-v", "--verbose", action="store_true", help="show whole differences")


def add_annotate(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_target(add)
    add("--service", required=True, metavar="URL", help="Fabricscope's address")
    words = "Fabricscope's address for people's browsers, if it is another"
    add("--public-url", default="", metavar="URL", help=words)
    add("--since", default="24h", metavar="SPAN", help="incidents seen since then: 90m, 24h, 7d")
    add("--follow", action="store_true", help="go on until interrupted")


def target_of(arguments: argparse.Namespace) -> Target:
    """The Grafana that is meant; SettingsError if there is no token."""
    token = read_token(
        arguments.token, arguments.token_file, os.environ.get(TOKEN_VARIABLE, ""), "token"
    )
    if not token:
        raise SettingsError(
            f"Grafana asks for a token: --token-file FILE, or {TOKEN_VARIABLE} in the environment"
        )
    return Target(
        url=check_url(arguments.grafana, "--grafana"), token=token, ca_file=arguments.ca_file
    )


def service_token_of(arguments: argparse.Namespace) -> str:
    """The service's token; empty: it asks for none."""
    given = os.environ.get(SERVICE_TOKEN_VARIABLE, "")
    return read_token("", arguments.service_token_file, given, "service-token")


def our_boards() -> dict[str, dict[str, Any]]:
    return {name: to_classic(name, board) for name, board in discover().items()}


def read_boards(folder: Path) -> dict[str, dict[str, Any]]:
    """The dashboards of a folder's files by the files' names; SettingsError names a bad file."""
    if not folder.is_dir():
        raise SettingsError(f"--from {folder}: there is no such folder")
    files = sorted(folder.glob("*.json"))
    if not files or len(files) > BOARDS_MAX:
        raise SettingsError(f"--from {folder}: {len(files)} *.json files; 1 to {BOARDS_MAX}")
    boards = {file.stem: read_board(file) for file in files}
    uids = [board["uid"] for board in boards.values()]
    for name, board in boards.items():
        if uids.count(board["uid"]) > 1:
            raise SettingsError(f"{folder / name}.json: uid {board['uid']} is in another file, too")
    return boards


def read_board(file: Path) -> dict[str, Any]:
    board = read_dashboard(file)
    uid, title = board.get("uid"), board.get("title")
    if not isinstance(uid, str) or not _UID.fullmatch(uid) or len(uid) > UID_CHARS_MAX:
        raise SettingsError(f"{file}: uid is {uid!r}; at most {UID_CHARS_MAX} of A-Z a-z 0-9 - _")
    if not isinstance(title, str) or not title:
        raise SettingsError(f"{file}: a dashboard needs a title")
    return board


def read_dashboard(file: Path) -> dict[str, Any]:
    """A file of Classic JSON, or of an answer of Grafana's API, which has the dashboard inside."""
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror or error}") from error
    if len(content) > FILE_BYTES_MAX:
        raise SettingsError(f"{file}: longer than FILE_BYTES_MAX, {FILE_BYTES_MAX} bytes")
    try:
        found = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: it is no dashboard's JSON: {error}") from error
    inner = found.get("dashboard")
    return inner if isinstance(inner, dict) else found


def chosen(boards: Mapping[str, Any], only: list[str]) -> dict[str, Any]:
    for name in only:
        if name not in boards:
            raise SettingsError(unknown("board", name, boards))
    return {name: board for name, board in boards.items() if not only or name in only}


def push_settings(arguments: argparse.Namespace) -> PushSettings:
    if arguments.only and arguments.prune:
        raise SettingsError("--only and --prune: one leaves boards out, the other removes them")
    target = target_of(arguments)
    service = check_url(arguments.service, "--service") if arguments.service else ""
    boards = read_boards(arguments.source) if arguments.source else our_boards()
    return PushSettings(
        target=target,
        boards=chosen(boards, arguments.only),
        folder=arguments.folder,
        service_url=service,
        service_token=service_token_of(arguments) if service else "",
        renews_service_token=arguments.renew_service_token,
        datasource=arguments.datasource,
        is_dry_run=arguments.dry_run,
        overwrites=arguments.overwrite,
        prunes=arguments.prune,
    )


def run_push(arguments: argparse.Namespace, write: Write) -> int:
    """`push`: each change is printed before it is made. The exit status."""
    settings = push_settings(arguments)

    def report_step(step: Step) -> None:
        for line in step_lines(step, is_verbose=arguments.verbose):
            write(line)

    report = push(settings, report_step)
    write(summary(report))
    if report.is_bad:
        return EXIT_FAILED
    return EXIT_WOULD_CHANGE if report.is_dry_run and report.has_writes else 0


def step_lines(step: Step, *, is_verbose: bool = False) -> list[str]:
    """A step as lines of text. Unchanged things are left out, unless ``is_verbose``."""
    if step.action is Action.KEEP and not (is_verbose or step.details):
        return []
    lines = [f"{step.action:<9}{step.kind} {plain(step.name)} ({plain(step.uid)})"]
    lines += [f"           {plain(line)}" for line in step.details]
    if is_verbose and step.diff:
        # Diffs hold texts of Grafana's: control characters must not reach the terminal.
        lines += [
            "".join(sign if sign.isprintable() else " " for sign in line)
            for line in step.diff.splitlines()
        ]
    return lines


def summary(report: Report) -> str:
    words = {
        Action.CREATE: "created",
        Action.UPDATE: "updated",
        Action.REMOVE: "removed",
        Action.KEEP: "as they should be",
        Action.CONFLICT: "in conflict",
        Action.FAIL: "failed",
    }
    if report.is_dry_run:
        for action in (Action.CREATE, Action.UPDATE, Action.REMOVE):
            words[action] = f"to {action}"
    counts = [
        f"{number} {word}" for action, word in words.items() if (number := report.count(action))
    ]
    again = f"; {report.retries} attempts were repeated" if report.retries else ""
    version = f"Grafana {report.version}" if report.version else "Grafana"
    return f"{version}: {', '.join(counts)}{again}" + (" (dry run)" if report.is_dry_run else "")


def read_span(text: str) -> int:
    """Seconds of a span of time.

    >>> read_span("90m"), read_span("7d")
    (5400, 604800)
    """
    found = _SPAN.fullmatch(text)
    if found is None or len(found[1]) > 6:  # noqa: PLR2004 - a million weeks are enough
        raise SettingsError(f"--since {text!r}: write a number and s, m, h, d or w, as 24h")
    return int(found[1]) * _SECONDS[found[2]]


def run_annotate(arguments: argparse.Namespace, write: Write) -> int:
    """`annotate`: once, or until interrupted. The exit status."""
    span_s = read_span(arguments.since)
    public_url = check_url(arguments.public_url, "--public-url") if arguments.public_url else ""
    target, token = target_of(arguments), service_token_of(arguments)
    with (
        closing(Service(arguments.service, token, arguments.ca_file)) as service,
        closing(Grafana(target)) as grafana,
    ):
        grafana.check()

        def once() -> Marked:
            return annotate(
                grafana,
                service,
                time.time() - span_s,
                public_url=public_url,
                is_dry_run=arguments.dry_run,
            )

        if arguments.follow and not arguments.dry_run:
            follow(once, functools.partial(tell_marked, write))
        marked = once()
    tell_marked(write, marked)
    return EXIT_WOULD_CHANGE if arguments.dry_run and not marked.is_quiet else 0


def tell_marked(write: Write, marked: Marked | str) -> None:
    if isinstance(marked, str):
        write(f"{marked}; trying again")
        return
    for word, ids in (("new", marked.created), ("changed", marked.updated)):
        for incident in ids:
            write(f"{word:<9}incident {plain(incident)}")
    write(
        f"{len(marked.created)} new, {len(marked.updated)} changed, {marked.kept} as they should "
        f"be, {marked.removed} doubles removed"
    )
    if marked.is_cut:
        write("there are more incidents than one run takes; the older ones are left out")
