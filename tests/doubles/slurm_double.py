"""Slurm's `sinfo` and `scontrol` as programs that keep nodes in a file and record every call.

What they say is what the programs of Slurm 22.05 say: tests/conformance/test_slurm_daemons.py.
"""

import json
import stat
import sys
from pathlib import Path
from typing import Any

PROGRAM = """#!{python}
import json, sys
from pathlib import Path

home = Path({home!r})
name, words = Path(sys.argv[0]).name, sys.argv[1:]
with (home / "calls").open("a") as file:
    file.write(json.dumps([name, *words]) + "\\n")
broken = home / f"{{name}}.broken"
if broken.exists():
    sys.exit(broken.read_text())
nodes = json.loads((home / "nodes.json").read_text())
if name == "sinfo":
    chosen = [word.removeprefix("--nodes=") for word in words if word.startswith("--nodes=")]
    wanted = chosen[0].split(",") if chosen else nodes
    for node in wanted:
        if node in nodes:
            state, reason = nodes[node]
            print(f"{{node}}|{{state}}|{{reason or 'none'}}|")
    sys.exit()
said = dict(word.split("=", 1) for word in words[1:])
if words[0] != "update" or said["NodeName"] not in nodes:
    sys.exit("slurm_update error: Invalid node name specified")
state, reason = nodes[said["NodeName"]]
if said["State"] == "DRAIN":
    if not said.get("Reason"):
        sys.exit("You must specify a reason when DOWNING or DRAINING a node.")
    state, reason = state.removesuffix("+drain") + "+drain", said["Reason"]
elif said["State"] == "UNDRAIN":
    state, reason = state.removesuffix("+drain"), ""
else:
    sys.exit("slurm_update error: Invalid node state specified")
nodes[said["NodeName"]] = [state, reason]
(home / "nodes.json").write_text(json.dumps(nodes))
"""


class SlurmDouble:
    """A cluster of these nodes; `bin` goes in front of PATH."""

    def __init__(self, home: Path, nodes: list[str]) -> None:
        self._home = home
        self.bin = home / "bin"
        self.bin.mkdir(parents=True)
        for name in ("sinfo", "scontrol"):
            program = self.bin / name
            program.write_text(PROGRAM.format(python=sys.executable, home=str(home)))
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self._write({node: ["idle", ""] for node in nodes})

    def _write(self, nodes: dict[str, list[str]]) -> None:
        (self._home / "nodes.json").write_text(json.dumps(nodes))

    @property
    def nodes(self) -> dict[str, list[str]]:
        """State and reason of each node."""
        found: dict[str, list[str]] = json.loads((self._home / "nodes.json").read_text())
        return found

    def set(self, node: str, state: str, reason: str = "") -> None:
        """A node as another administrator has set it."""
        self._write({**self.nodes, node: [state, reason]})

    def break_program(self, name: str, words: str) -> None:
        """From now on a program fails and says this; with no words it works again."""
        broken = self._home / f"{name}.broken"
        if words:
            broken.write_text(words)
        else:
            broken.unlink()

    def calls(self, name: str = "scontrol") -> list[list[Any]]:
        """The words of every call of a program so far."""
        file = self._home / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [call[1:] for line in lines if (call := json.loads(line))[0] == name]
