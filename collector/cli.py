"""The one command, `fabricscope`: it finds the verb and calls its module.

Each package registers its verbs in its `verbs.toml`; nothing else here names them. A verb's module
is imported when the verb is called, so that an agent's install never needs the server's packages.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import os
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from collector.contract.errors import FabricscopeError, SettingsError

if TYPE_CHECKING:
    from collector.mistakes import Parser

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells do."""

OPTIONS = ("--help", "--version")
"""Of the command itself."""

PACKAGES = ("collector", "api", "simulator", "dashboards")
"""Each has a `verbs.toml`."""


class Verb(Protocol):
    """What a verb's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


class Registered(NamedTuple):
    """A verb as its package registers it."""

    module: str
    help: str


def registered() -> dict[str, Registered]:
    found: dict[str, Registered] = {}
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            continue
        file = Path(spec.submodule_search_locations[0]) / "verbs.toml"
        tables = tomllib.loads(file.read_text("utf-8"))
        found |= {name: Registered(**table) for name, table in tables.items()}
    return found


def load_verb(name: str, module: str) -> Verb:
    """Raises SettingsError with what to install, if packages are missing.

    Without the collector of garbage, which would look at the modules again and again while there
    are ever more of them: half of the service's start. They stay, so it never looks at them after.
    """
    gc.disable()
    try:
        return cast("Verb", importlib.import_module(module))
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{name} needs {error.name}, which is not installed: pip install 'fabricscope[server]'"
        ) from error
    finally:
        gc.freeze()
        gc.enable()


def usage(verbs: dict[str, Registered]) -> str:
    width = max(len(name) for name in verbs)
    lines = "\n".join(f"  {name:<{width}}  {verb.help}" for name, verb in verbs.items())
    return (
        "usage: fabricscope VERB [OPTION…]\n\n"
        "Finds the link, NIC, host, GPU or rank that makes a training job slow.\n\n"
        f"{lines}\n\nfabricscope VERB --help describes a verb; fabricscope --version prints the"
        " version."
    )


def run(words: list[str]) -> int:
    """Run a command line; the exit status."""
    verbs = registered()
    if not words or words[0] in {"-h", "--help", "help"}:
        print(usage(verbs))
        return 0 if words else EXIT_USAGE
    if words[0] in {"-V", "--version"}:
        from importlib import metadata

        print(f"fabricscope {metadata.version('fabricscope')}")
        return 0
    chosen = verbs.get(words[0])
    if chosen is None:
        from collector.contract.layers import unknown

        is_option = words[0].startswith("-")
        what, known = ("option", OPTIONS) if is_option else ("verb", tuple(verbs))
        said = unknown(what, words[0], known)
        raise SettingsError(f"{said}{'' if said.endswith('?') else '.'} Try fabricscope --help")
    parser = parser_of(words[0], chosen)
    return load_verb(words[0], chosen.module).run(parser.parse_all(words[1:]))


def parser_of(name: str, verb: Registered) -> Parser:
    """The parser of a verb's command line. Raises SettingsError if its packages are missing."""
    from collector.mistakes import Parser

    parser = Parser(prog=f"fabricscope {name}", description=verb.help, allow_abbrev=False)
    load_verb(name, verb.module).add_arguments(parser)
    return parser


def main(words: list[str] | None = None) -> int:
    """The console script: errors of ours are one line, not a trace."""
    try:
        return run(sys.argv[1:] if words is None else words)
    except FabricscopeError as error:
        print(f"fabricscope: {error}", file=sys.stderr)
        return EXIT_USAGE
    except PermissionError as error:
        if error.filename is None:
            raise
        said = f"{error.filename}: {error.strerror}; run this as a user who may, or name another"
        print(f"fabricscope: {said}", file=sys.stderr)
        return EXIT_USAGE
    except BrokenPipeError:
        # Piped into `head`. Keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
