"""`fabricscope costs`: what troubles have cost in GPU-hours and money, the dearest first."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec

from api.remote.client import Client, ServiceError, Target
from collector.contract.client_flags import add_client_flags
from collector.contract.errors import SettingsError
from collector.contract.figures import shown

EXIT_FAILED = 1
DAY_SECONDS = 86_400
ROWS = 20
BY = ("culprit", "cause", "incident", "job", "week")
KEY_CHARS_MAX = 72


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by", choices=BY, default="culprit", help="what is added up (default: culprit)"
    )
    parser.add_argument("--days", type=float, default=7.0, help="of the past (default 7)")
    parser.add_argument("--job", help="only what it lost")
    parser.add_argument(
        "--price", type=float, help="of a GPU-hour (default: the service's setting)"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    add_client_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    if not 0 < arguments.days <= 3650:  # noqa: PLR2004 - ten years
        raise SettingsError(f"--days is {arguments.days:g}; above 0, up to 3650")
    target = Target.of(arguments, "read")
    target.read_token()
    client = Client(target, "costs", for_terminal=True)
    words: dict[str, Any] = {"by": arguments.by}
    words["from"] = f"{client.now_s - arguments.days * DAY_SECONDS:.3f}"
    words |= {} if arguments.job is None else {"job": arguments.job}
    words |= {} if arguments.price is None else {"price": arguments.price}
    try:
        told = client.get("/v1/costs", dict[str, Any], **words)
    except ServiceError as error:
        print(f"fabricscope: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        client.close()
    print(msgspec.json.encode(told).decode() if arguments.json else text_of(told))
    return 0


def text_of(told: dict[str, Any]) -> str:
    """A table, and below it what the sums leave out."""
    money = f"  {shown(told['currency']):>12}" if told["money"] is not None else ""
    lines = [f"{'GPU-HOURS':>10}{money}  SHARE  INCIDENTS  {told['by'].upper()}"]
    for one in told["entries"][:ROWS]:
        cost = f"  {one['money']:>12,.0f}" if one["money"] is not None else ""
        line = f"{one['gpu_hours']:>10,.1f}{cost}  {one['share']:>5.0%}  {one['incidents']:>9}"
        lines.append(f"{line}  {shown(one['key'])[:KEY_CHARS_MAX]}")
    total = f"  {told['money']:>12,.0f}" if told["money"] is not None else ""
    lines.append(f"{told['gpu_hours']:>10,.1f}{total}   100%  {told['incidents']:>9}  in all")
    if told["unmeasured"]:
        lines.append(f"The cost of {told['unmeasured']} incidents is not known: they add nothing.")
    more = len(told["entries"]) - ROWS + told["entries_left_out"]
    if more > 0:
        lines.append(f"{more} more lines: --json has the first {len(told['entries'])}.")
    if told["is_partial"]:
        lines.append("There are more incidents than one answer reads: ask about fewer days.")
    if told["money"] is None:
        lines.append("Without a price: set price_per_gpu_hour, or give --price.")
    return "\n".join(lines)
