"""The metrics of all processes of a service as one page, each series with its process' name.

prometheus-client's own way (files that all processes map) knows no gauge that is read when it is
asked for, and no metrics of processes; most of ours are such. So each process is asked for its
page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

PROCESS: Final = "process"
UP: Final = "fabric_service_process_up"
FAMILY: Final = re.compile(r"^# HELP (\S+) ", re.MULTILINE)


def merge(pages: Mapping[str, str]) -> str:
    """One page of several in Prometheus' text format, by the names of their processes."""
    heads: dict[str, list[str]] = {}
    rows: dict[str, list[str]] = {}
    for process, page in pages.items():
        family = ""
        for line in page.splitlines():
            if found := FAMILY.match(line):
                family = found[1]
                heads.setdefault(family, [])
                rows.setdefault(family, [])
                if not heads[family]:
                    heads[family].append(line)
            elif line.startswith("#"):
                if len(heads[family]) == 1:
                    heads[family].append(line)
            elif line:
                rows[family].append(labelled(line, process))
    return "".join(f"{line}\n" for family in heads for line in (*heads[family], *rows[family]))


def labelled(line: str, process: str) -> str:
    """A sample's line with one label more. A value has no brace, so the last one ends the labels.

    >>> labelled('a{b="}"} 1.0', "p")
    'a{b="}",process="p"} 1.0'
    """
    before, brace, after = line.rpartition("}")
    if not brace:
        name, _, value = line.partition(" ")
        return f'{name}{{{PROCESS}="{process}"}} {value}'
    comma = "" if before.endswith("{") else ","
    return f'{before}{comma}{PROCESS}="{process}"}}{after}'
