"""`fabricscope audit`: which settings of this host cost bandwidth, and how to correct them.

The verb's own root: it builds the `Host`, reads the facts and prints; the rest of this package
touches nothing.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec

from collector.audit.expectations import NOTHING_EXPECTED, Expectations, parse_expectations
from collector.audit.facts import Fact, Facts, Unread, listed
from collector.audit.finding import Finding, Severity, severity_rank
from collector.audit.judge import blinded, check_names, judge_host, worst
from collector.audit.settings import MODEL
from collector.contract.errors import SettingsError
from collector.contract.reason import UnreadReason

EXIT_FOUND = 1
"""Something costs bandwidth: a finding of severity warning or critical."""
WIDTH = 100


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints. ``facts`` and ``unread`` are the input of the findings."""

    host: str
    findings: list[Finding]
    unread: list[Unread]
    facts: list[Fact]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, with all facts")
    parser.add_argument(
        "--root",
        type=Path,
        default=Path("/"),
        metavar="DIR",
        help="read a captured tree (DIR/sys, DIR/proc, DIR/commands) instead of /",
    )
    parser.add_argument(
        "--expect", type=Path, metavar="FILE", help="values that this site expects, TOML"
    )
    parser.epilog = (
        "Reads only. Exit status: 0 nothing to be done, 1 a finding of severity warning or "
        "critical, 2 wrong usage."
    )


def run(arguments: argparse.Namespace) -> int:
    from collector.doors.host import Host, check_root
    from collector.reading.configuration.reader import ConfigurationReader

    expectations = load_expectations(arguments.expect)
    check_root(arguments.root)
    host = Host(arguments.root)
    try:
        facts = ConfigurationReader().read(host)
        name = host.name
    finally:
        host.close()
    if facts is None:
        facts = Facts(name, ())
        why = "neither an RDMA device nor an NVIDIA GPU: nothing here is for training"
        facts.unread = (Unread("", "everything", UnreadReason.ABSENT, why),)
    findings = judge_host(facts, expectations)
    if arguments.json:
        report = Report(
            host=facts.host, findings=findings, unread=list(facts.unread), facts=list(facts.all())
        )
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        print("\n".join(lines_of(facts, findings)))
    found = worst(findings)
    is_bad = found is not None and severity_rank(found) >= severity_rank(Severity.WARNING)
    return EXIT_FOUND if is_bad else 0


def load_expectations(file: Path | None) -> Expectations:
    """The site's expectations; none without a file."""
    if file is None:
        return NOTHING_EXPECTED
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--expect {file}: {error}") from error
    return parse_expectations(text, str(file), check_names())


def lines_of(facts: Facts, findings: list[Finding]) -> Iterator[str]:
    models = listed(sorted({facts.value(gpu, MODEL) for gpu in facts.gpus} - {""}))
    gpus = f"{len(facts.gpus)} GPUs" + (f" ({models})" if models else "")
    nics = listed(facts.fabric_nics, most=2)
    named = f" ({nics})" if nics else ""
    yield f"{facts.host}: {gpus}, {len(facts.fabric_nics)} training NICs{named}"
    counts = {level: sum(each.severity is level for each in findings) for level in Severity}
    shown = ", ".join(f"{count} {level}" for level, count in counts.items() if count)
    yield f"findings: {shown or 'none'}"
    for finding in findings:
        yield ""
        yield from finding_lines(finding)
    if facts.unread:
        yield ""
        yield "could not be read:"
        for unread in facts.unread:
            yield from unread_lines(unread)


def finding_lines(finding: Finding) -> Iterator[str]:
    yield from paragraph(f"{finding.severity}: ", f"{finding.title} [{finding.check}]")
    for each in finding.read:
        where = f"{each.device} " if each.device else ""
        yield from paragraph(
            "  read      ", f"{where}{each.setting} = {each.value}  ({each.origin})"
        )
    yield from paragraph("  expected  ", finding.expected)
    yield from paragraph("  why       ", f"{finding.why} ({finding.source})")
    yield from paragraph("  fix       ", finding.fix)
    yield from paragraph("  cost      ", finding.cost)
    yield from paragraph("  sure      ", f"{100 * finding.confidence:.0f} %")


def unread_lines(unread: Unread) -> Iterator[str]:
    where = f"{unread.device} " if unread.device else ""
    detail = f": {unread.detail}" if unread.detail else ""
    checks = blinded(unread)
    kept = f" (matters to {', '.join(checks)})" if checks else ""
    yield from paragraph("  ", f"{where}{unread.setting}, {unread.reason}{detail}{kept}")


def paragraph(head: str, text: str) -> list[str]:
    """A text behind its head, in lines that fit; words such as paths are never broken."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [head.rstrip()]
