"""`fabricscope agent`: read this host, serve what was read, send it to the service."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from collector.agent.agent import Agent, read_once
from collector.agent.settings import AgentSettings, load_settings
from collector.contract.layers import Layer
from collector.contract.logs import LOG_LEVELS, set_up_logging
from collector.doors.host import Host, check_root
from collector.sources import discover

EXIT_FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(arguments: argparse.Namespace) -> int:
    sources = discover()
    names = AgentSettings.__struct_fields__
    flags = {name: value for name, value in vars(arguments).items() if name in names}

    def load(served: Layer | None = None) -> AgentSettings:
        return load_settings(
            {name: source.Settings for name, source in sources.items()},
            file=arguments.config,
            environment=os.environ,
            flags=flags,
            served=served,
        )

    check_root(arguments.root)
    host = Host(arguments.root)
    if not arguments.once:
        set_up_logging(arguments.log_level)
        return Agent(load, sources, host, overlay=load).run()
    set_up_logging("error")
    text, broken = read_once(load(), sources, host)
    sys.stdout.write(text)
    if broken:
        sys.stderr.write(f"fabricscope: source failed: {', '.join(broken)}\n")
    return EXIT_FAILED if broken else 0
