"""Addresses of boards: from an alert's labels to the board of its culprit, at that time."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from collector.contract.units import NS_PER_MS
from dashboards.grafana.jumps import uid_of

ANNOTATION = "dashboard"
"""The annotation of an alert that holds the address of its board."""
LEAD_MS = 30 * 60 * 1_000
"""Before its beginning: what was usual, and how it began."""
TRAIL_MS = 10 * 60 * 1_000
"""After its end: whether it stayed away."""
VALUE_CHARS_MAX = 200
"""Of a name in an address. No thing has a longer one, and addresses have bounds, too."""


def choose_board(labels: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The board of the thing that these labels name, the most exact first, and its variables.

    A switch is a host whose device is the switch itself. Of a link that is named by both ends the
    host's is shown: that board also shows what is at the other end.

    >>> choose_board({"host": "node7", "device": "mlx5_0", "port": "1"})
    ('port', {'host': 'node7', 'device': 'mlx5_0', 'port': '1'})
    >>> choose_board({"switch": "leaf-1", "switch_port": "Ethernet4"})
    ('port', {'host': 'leaf-1', 'device': 'leaf-1', 'port': 'Ethernet4'})
    """
    given = {key: value for key, value in labels.items() if value}
    host, device, port = (given.get(key, "") for key in ("host", "device", "port"))
    switch, switch_port = given.get("switch", ""), given.get("switch_port", "")
    is_switch = given.get("scope") == "switch" or (device == host and not port)
    choices: list[tuple[bool, str, dict[str, str]]] = [
        (given.get("theme") == "self", "itself", {}),
        (bool(host) and is_switch, "switch", {"switch": host}),
        (bool(host and device), "port", {"host": host, "device": device, "port": port}),
        (bool(host), "host", {"host": host}),
        (
            bool(switch and switch_port),
            "port",
            {"host": switch, "device": switch, "port": switch_port},
        ),
        (bool(switch), "switch", {"switch": switch}),
        ("job" in given, "job", {"job": given.get("job", "")}),
        (True, "alerts", {}),
    ]
    board, variables = next((name, words) for is_it, name, words in choices if is_it)
    return board, {name: value for name, value in variables.items() if value}


def board_link(base: str, labels: Mapping[str, str], from_ns: int, to_ns: int | None) -> str:
    """The address of that board in the Grafana at ``base``, around a span of time.

    Unix nanoseconds; ``to_ns`` None: it goes on, and the board shows up to now.

    >>> board_link("https://g.example/", {"host": "a b"}, 10**18, None)
    'https://g.example/d/fabricscope-host/host?from=999998200000&to=now&var-host=a%20b'
    """
    board, variables = choose_board(labels)
    if cluster := labels.get("cluster"):
        variables = {"cluster": cluster, **variables}
    words = {
        "from": str(max(0, from_ns // NS_PER_MS - LEAD_MS)),
        "to": "now" if to_ns is None else str(to_ns // NS_PER_MS + TRAIL_MS),
    }
    words |= {
        f"var-{name}": value for name, value in variables.items() if len(value) <= VALUE_CHARS_MAX
    }
    path = f"/d/{uid_of(board)}/{board.replace('_', '-')}"
    return f"{base.rstrip('/')}{path}?{urlencode(words, quote_via=quote, safe='')}"
