"""The one command, `fabricscope`, and its verbs.

A verb's module is imported when the verb is called, so that an agent's install never needs the
server's packages. Those of `MODULES` offer `add_arguments` and `run`.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from pathlib import Path
from typing import Protocol, cast

from collector.contract.errors import FabricscopeError, SettingsError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells do."""

VERBS = {
    "agent": "read this host's counters, serve them on /metrics and send them to the service",
    "serve": "run the service: take samples, keep them, answer questions about them",
    "demo": "show a simulated cluster of 256 GPUs, watched by real agents and the real service",
    "shim": "print one file to copy: marks for a training loop, or a client for schedulers",
    "diagnose": "read a folder of NCCL logs, dumps and traces, and say what slows the job down",
    "simulate": "run a simulated cluster as fast as it goes, and write what it shows",
    "score": "let known faults strike simulated clusters, and mark what is found",
    "audit": "say which settings of this host cost bandwidth, and how to set them right",
    "rules": "check and test alerting rules, turn the thresholds of those that we ship",
    "dashboards": "write, check and push the Grafana dashboards",
    "actions": "what is done with hosts: list, grant, refuse, undo; the policy and its figures",
    "slurm": "let Slurm know what is held, and us its jobs; topology.conf from what is cabled",
    "top": "watch incidents, jobs, links and hosts live in a terminal",
    "kubernetes": "tell a cluster's nodes how they are: conditions, labels, taints",
    "token": "make, list and revoke the tokens that the service asks for",
}
MODULES = {
    "serve": "api.cli",
    "demo": "api.demo.cli",
    "diagnose": "api.diagnose.cli",
    "simulate": "simulator.cli",
    "score": "api.score.cli",
    "audit": "collector.audit.cli",
    "rules": "api.rules.cli",
    "dashboards": "dashboards.grafana.cli",
    "actions": "api.remote.actions.cli",
    "slurm": "api.remote.slurm.cli",
    "top": "api.remote.top.cli",
    "kubernetes": "api.remote.kubernetes.cli",
    "token": "api.tokens.cli",
}
"""Where verbs live that need more than an agent's packages."""
LOG_LEVELS = ("debug", "info", "warning", "error")


class Verb(Protocol):
    """What a verb's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Say what the verb takes."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; the exit status."""


class AgentVerb:
    """`fabricscope agent`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Flags; those of settings are named as the setting and win over file and environment."""
        parser.add_argument("--config", type=Path, metavar="FILE", help="settings, TOML")
        parser.add_argument(
            "--once", action="store_true", help="print one read of every source and exit"
        )
        parser.add_argument(
            "--root",
            type=Path,
            default=Path("/"),
            metavar="DIR",
            help="read a captured tree (DIR/sys, DIR/proc, DIR/ethtool) instead of /",
        )
        parser.add_argument("--log-level", choices=LOG_LEVELS, default="info")
        settings = parser.add_argument_group("settings (also in FILE and FABRICSCOPE_AGENT_…)")
        for flag, name, metavar, text in (
            ("--service", "service_url", "URL", "where batches go; empty for nowhere"),
            ("--spool", "spool_dir", "DIR", "where batches wait for the service"),
            ("--listen", "listen", "HOST:PORT", "the agent's own /metrics; empty for none"),
            ("--host", "host", "NAME", "the name of this host"),
            ("--cluster", "cluster", "NAME", "the cluster of this host"),
            ("--token-file", "token_file", "FILE", "holds the bearer token"),
            ("--ca-file", "ca_file", "FILE", "certificates to trust"),
            ("--flush-seconds", "flush_seconds", "SECONDS", "readings of so long make a batch"),
        ):
            settings.add_argument(
                flag, dest=name, default=argparse.SUPPRESS, metavar=metavar, help=text
            )

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the agent, or read once."""
        from collector.agent import Agent, read_once
        from collector.host import Host
        from collector.settings import AgentSettings, load_settings
        from collector.sources import discover

        sources = discover()
        names = AgentSettings.__struct_fields__
        flags = {name: value for name, value in vars(arguments).items() if name in names}

        def load() -> AgentSettings:
            return load_settings(
                {name: source.Settings for name, source in sources.items()},
                file=arguments.config,
                environment=os.environ,
                flags=flags,
            )

        check_root(arguments.root)
        host = Host(arguments.root)
        if not arguments.once:
            set_up_logging(arguments.log_level)
            return Agent(load, sources, host).run()
        set_up_logging("error")
        text, broken = read_once(load(), sources, host)
        sys.stdout.write(text)
        if broken:
            print(f"fabricscope: source failed: {', '.join(broken)}", file=sys.stderr)
        return EXIT_FAILED if broken else 0


SHIMS = ("steps", "client")
"""Folders of files that run in other people's programs."""


class ShimVerb:
    """`fabricscope shim`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Which file."""
        parser.add_argument(
            "file",
            nargs="?",
            choices=SHIMS,
            default="steps",
            help="steps: fabricscope_steps.py (default); client: fabricscope_client.py",
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Print the file as it is installed, so that it fits this version's agents and service."""
        from importlib import resources

        name = arguments.file
        shim = resources.files(f"collector.{name}") / f"fabricscope_{name}.py"
        sys.stdout.write(shim.read_text("utf-8"))
        return 0


def check_root(root: Path) -> None:
    """Raise SettingsError unless something can be read below this folder."""
    if not root.is_dir():
        raise SettingsError(f"--root {root}: there is no such folder")
    if not any((root / name).is_dir() for name in ("sys", "proc")):
        raise SettingsError(f"--root {root}: neither sys nor proc in it; it is no captured tree")


def set_up_logging(level: str) -> None:
    """One plain line per message on stderr; the journal adds nothing that is not in it."""
    logging.basicConfig(
        level=level.upper(),
        format="%(asctime)s %(levelname)-7s %(message)s",
        stream=sys.stderr,
        force=True,
    )
    # They tell about every request and every connection.
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def load_verb(name: str) -> Verb:
    """The verb's module; a SettingsError that says what to install, if packages are missing."""
    if name == "agent":
        return AgentVerb()
    if name == "shim":
        return ShimVerb()
    try:
        return cast("Verb", importlib.import_module(MODULES[name]))
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{name} needs {error.name}, which is not installed: pip install 'fabricscope[server]'"
        ) from error


def usage() -> str:
    """What `fabricscope --help` says."""
    width = max(len(name) for name in VERBS)
    verbs = "\n".join(f"  {name:<{width}}  {text}" for name, text in VERBS.items())
    return (
        "usage: fabricscope VERB [OPTION…]\n\n"
        "Says which link, NIC, host, GPU or rank makes a training job slow.\n\n"
        f"{verbs}\n\nfabricscope VERB --help tells more; fabricscope --version says which this is."
    )


def run(words: list[str]) -> int:
    """Do what the command line says; the exit status."""
    if not words or words[0] in {"-h", "--help", "help"}:
        print(usage())
        return 0 if words else EXIT_USAGE
    if words[0] in {"-V", "--version"}:
        from importlib import metadata

        print(f"fabricscope {metadata.version('fabricscope')}")
        return 0
    if words[0] not in VERBS:
        from collector.contract.layers import unknown

        raise SettingsError(f"{unknown('verb', words[0], VERBS)} Try fabricscope --help")
    verb = load_verb(words[0])
    parser = argparse.ArgumentParser(
        prog=f"fabricscope {words[0]}", description=VERBS[words[0]], allow_abbrev=False
    )
    verb.add_arguments(parser)
    return verb.run(parser.parse_args(words[1:]))


def main(words: list[str] | None = None) -> int:
    """The console script: errors of ours are one line, not a trace."""
    try:
        return run(sys.argv[1:] if words is None else words)
    except FabricscopeError as error:
        print(f"fabricscope: {error}", file=sys.stderr)
        return EXIT_USAGE
    except BrokenPipeError:
        # Somebody piped us into `head`. Keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
