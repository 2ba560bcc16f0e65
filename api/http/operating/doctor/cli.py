"""`fabricscope doctor`: looks at everything that operators get wrong, and says what to do.

It takes the same settings as `fabricscope serve`, changes nothing, and works beside a running
service as well as without one. Run it as the service's user: that one's rights are what counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import msgspec

from api.http.cli import FLAGS
from api.http.cli import add_arguments as add_service_arguments
from api.http.operating.doctor import kept, machine
from api.http.operating.doctor.model import Grade, Look, table, worst, wrong
from api.http.settings import ServiceSettings, load_service_settings
from collector.contract.errors import FabricscopeError, SettingsError
from collector.contract.identity import printable
from collector.contract.progress import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_service_arguments(parser)
    parser.add_argument("--json", action="store_true", help="for programs")


def run(arguments: argparse.Namespace) -> int:
    """0 unless something is wrong; warnings are no failure."""
    looks = list(look(arguments))
    grade = worst(looks)
    if arguments.json:
        document = {"grade": grade, "checks": looks}
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        shown = [msgspec.structs.replace(each, found=printable(each.found)) for each in looks]
        print(table(shown))
    return 1 if grade is Grade.WRONG else 0


def look(arguments: argparse.Namespace) -> Iterator[Look]:
    flags = {name: getattr(arguments, name) for name in FLAGS}
    try:
        settings = load_service_settings(arguments.config, flags)
    except SettingsError as error:
        yield wrong("settings", str(error), "docs/reference/settings.md has them all")
        yield from machine.look_at_clock()
        yield from machine.look_at_files()
        return
    yield Look("settings", Grade.OK, str(arguments.config or "no file: flags and environment"))
    progress = Progress()
    for subject, see in looks_of(settings).items():
        progress.say(f"doctor: looks at {subject}")
        try:
            yield from see()
        except PermissionError as error:
            said = f"{error.filename}: {error.strerror}"
            yield wrong(subject, said, "run this as the service's user, or as root")
        except (FabricscopeError, OSError) as error:  # one look that fails hides no other
            yield wrong(subject, str(error), "it could not be looked at")
    progress.end()


def looks_of(settings: ServiceSettings) -> dict[str, Callable[[], Iterator[Look]]]:
    is_running = machine.is_locked(settings.data_path)
    return {
        "data folder": lambda: machine.look_at_folder(settings),
        "service": lambda: machine.look_at_service(settings, is_running=is_running),
        "store": lambda: kept.look_at_store(settings, is_running=is_running),
        "inventory": lambda: kept.look_at_inventory(settings),
        "clock": machine.look_at_clock,
        "open files": machine.look_at_files,
        "TLS": lambda: machine.look_at_certificate(settings, time.time()),
        "rule files": lambda: kept.look_at_rules(settings),
        "notices": lambda: machine.look_at_receivers(settings),
    }
