"""`fabricscope what-if`: what steps of running jobs would take on a changed fabric."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any

import msgspec

from api.remote.client import Bounds, Client, ServiceError, Target
from collector.contract.client_flags import add_client_flags
from collector.contract.errors import SettingsError
from collector.contract.figures import shown

EXIT_FAILED = 1
SECONDS_DEFAULT = 300
BOUNDS = Bounds(silence_s=60.0, answer_s=90.0)
"""A service reads some seconds of every large job for an answer."""
RATE = re.compile(r"(\d+(?:\.\d+)?)([kMGT]?)(?:b(?:it)?(?:ps|/s)?)?")
FACTOR = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    link = "a link: its id, or one of its ports (leaf-0/3, node0003/mlx5_0/1); may be repeated"
    parser.add_argument("--drop", action="append", default=[], metavar="LINK", help=link)
    parser.add_argument(
        "--double", action="append", default=[], metavar="LINK", help="a second cable beside it"
    )
    parser.add_argument(
        "--speed", action="append", default=[], metavar="LINK=RATE", help="as leaf-0/3=200G"
    )
    parser.add_argument(
        "--move", action="append", default=[], metavar="JOB:RANK=HOST", help="a rank elsewhere"
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS_DEFAULT, help="of latest traffic (default 300)"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    add_client_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    body: dict[str, Any] = {
        "drop": arguments.drop,
        "double": arguments.double,
        "speed": [speed_of(text) for text in arguments.speed],
        "move": [move_of(text) for text in arguments.move],
        "seconds": arguments.seconds,
    }
    if not any(body[name] for name in ("drop", "double", "speed", "move")):
        raise SettingsError("nothing is changed: give --drop, --double, --speed or --move")
    target = Target.of(arguments, "read")
    target.read_token()
    client = Client(target, "what-if", bounds=BOUNDS, for_terminal=True)
    try:
        told = client.send("POST", "/v1/what-if", msgspec.json.encode(body), dict[str, Any])
    except ServiceError as error:
        print(f"fabricscope: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        client.close()
    print(msgspec.json.encode(told).decode() if arguments.json else text_of(told))
    return 0


def speed_of(text: str) -> dict[str, Any]:
    """`LINK=RATE`.

    >>> speed_of("leaf-0/3=200G")
    {'link': 'leaf-0/3', 'bits_per_second': 200000000000}
    """
    link, _, rate = text.rpartition("=")
    found = RATE.fullmatch(rate)
    if not link or found is None or not float(found[1]):
        raise SettingsError(f"--speed {text!r}: write LINK=RATE, as leaf-0/3=200G")
    return {"link": link, "bits_per_second": round(float(found[1]) * FACTOR[found[2]])}


def move_of(text: str) -> dict[str, Any]:
    """`JOB:RANK=HOST`.

    >>> move_of("llama:7=node3")
    {'job': 'llama', 'rank': 7, 'host': 'node3'}
    """
    what, _, host = text.rpartition("=")
    job, _, rank = what.rpartition(":")
    if not (job and host and rank.isascii() and rank.isdigit()):
        raise SettingsError(f"--move {text!r}: write JOB:RANK=HOST, as llama-70b:7=node3")
    return {"job": job, "rank": int(rank), "host": host}


def text_of(told: dict[str, Any]) -> str:
    """What is changed, a table of jobs, and what the answer does not know."""
    lines = [f"If {change}:" for change in told["changes"]]
    lines += ["", f"{'STEP':>9}  {'EXPECTED':>9}  {'CHANGE':>7}  {'RANGE':<17}  JOB"]
    for one in told["jobs"]:
        lines.append(row_of(one))
        lines += [f"{'':>9}  cannot be told: {why}" for why in one["cannot_tell"]]
        if one["stops_because"]:
            lines.append(f"{'':>9}  it would stop: {one['stops_because']}")
        lines += [f"{'':>9}  {each}" for each in notes_of(one, told["currency"])]
    if not told["jobs"]:
        lines.append("No running job is known.")
    if told["jobs_left_out"]:
        lines.append(f"{told['jobs_left_out']} more jobs run, and were not looked at.")
    lines += [f"Not known: {each}" for each in told["unknown"]]
    lines.append(f"'=' is a job that does not change. Assumes: {', '.join(told['assumes'])}.")
    return "\n".join(lines)


def row_of(one: dict[str, Any]) -> str:
    now, expected, reach = (one[f"step_seconds{end}"] for end in ("", "_expected", "_range"))
    name = shown(one["title"])
    if one["stops_because"]:
        return f"{seconds(now):>9}  {'stops':>9}  {'':>7}  {'':<17}  {name}"
    if expected is None:
        return f"{seconds(now):>9}  {'?':>9}  {'?':>7}  {'':<17}  {name}"
    change = f"{one['slower']:+.1%}" if one["is_affected"] else "="
    span = f"{seconds(reach[0])} to {seconds(reach[1])}"
    return f"{seconds(now):>9}  {seconds(expected):>9}  {change:>7}  {span:<17}  {name}"


def notes_of(one: dict[str, Any], currency: str) -> list[str]:
    """Which cable limits it then, and what that is worth."""
    found = []
    limit = one["bottleneck_expected"]
    if one["is_affected"] and limit is not None:
        rate = f"{limit['bits_per_second'] / 1e9:.4g} Gb/s"
        found.append(f"limited by {shown(limit['source'])} ({rate})")
    hours = one["gpu_hours_per_day"]
    if one["is_affected"] and hours is not None:
        money = one["money_per_day"]
        price = f" ({abs(money):,.0f} {shown(currency)})" if money is not None else ""
        word = "lost" if hours > 0 else "gained"
        found.append(f"{abs(hours):,.1f} GPU-hours a day {word}{price}")
    return found


def seconds(length: float | None) -> str:
    if length is None:
        return "?"
    return f"{length:.2f} s" if length >= 1 else f"{1e3 * length:.0f} ms"
