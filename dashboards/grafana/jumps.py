"""Links from a value on one board to another board: time, data source and choices go with them."""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.grafana.fields import Json
from dashboards.grafana.model import Draw, Jump

UID_PREFIX = "fabricscope-"
"""Before a board's name: uids are one namespace for a whole Grafana."""


TO_JOB = Jump(title="The job", to="job", variables={"job": "job"})
TO_HOST = Jump(title="The host", to="host", variables={"host": "host"})
TO_RANKS = Jump(title="Who waits for whom", to="ranks", variables={"job": "job"})
TO_SWITCH = Jump(title="The switch", to="switch", variables={"switch": "switch"})
TO_THIS_SWITCH = Jump(title="The switch", to="switch", variables={"switch": "host"})
"""From a row or a line whose host is the switch itself."""
TO_PORT = Jump(
    title="The port", to="port", variables={"host": "host", "device": "device", "port": "port"}
)
TO_SWITCH_PORT = Jump(
    title="The switch's port",
    to="port",
    variables={"host": "switch", "device": "switch", "port": "switch_port"},
)
"""On a switch host and device are the same."""


def uid_of(name: str) -> str:
    """The uid of a board by the name of its file.

    >>> uid_of("rank_by_rank")
    'fabricscope-rank-by-rank'
    """
    return UID_PREFIX + name.replace("_", "-")


def data_link(jump: Jump, carried: Sequence[str], draw: Draw) -> Json:
    """A link of Grafana's. ``carried`` are the variables of the board that it stands on.

    Grafana fills in what is in braces, and quotes it for an address. A table has labels in other
    columns of the row, everything else has them on the series itself.
    """
    label = "__data.fields" if draw is Draw.TABLE else "__field.labels"
    words = ["${__url_time_range}", "${datasource:queryparam}"]
    words += [f"${{{name}:queryparam}}" for name in carried if name not in jump.variables]
    words += [f"var-{name}=${{{label}.{of}}}" for name, of in sorted(jump.variables.items())]
    return {
        "title": jump.title,
        "url": f"/d/{uid_of(jump.to)}/{jump.to.replace('_', '-')}?{'&'.join(words)}",
        "targetBlank": False,
    }
