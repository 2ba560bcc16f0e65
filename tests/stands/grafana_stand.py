"""A Grafana for tests: the double, or a real one where GRAFANA_URL and GRAFANA_TOKEN say so.

The real one has to be on loopback, because tests reach nothing else (`ssh -L` brings a remote one
there), and its token needs the role Admin. Tests put everything into a folder and a data source of
their own, and remove them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from collector.cli import main
from dashboards.grafana import connection
from tests.doubles.grafana_double import ADMIN, GrafanaDouble

ROOT = Path(__file__).resolve().parents[2]
BOARDS = ROOT / "tests/fixtures/grafana/boards"
FOLDER = "Fabricscope test"
FOLDER_UID = "fabricscope-test"
SOURCE = "Fabricscope test"
COMMAND_SECONDS = 120
"""A command that hangs is a failure; on a busy machine Python alone takes seconds to start."""
PROGRAM = "import sys; from collector.cli import main; sys.exit(main())"


@dataclass(frozen=True)
class Done:
    """What a command did."""

    status: int
    text: str
    """Its stdout and stderr."""


@dataclass(frozen=True)
class Stand:
    """A Grafana, and a hand in it."""

    url: str
    token: str
    fake: GrafanaDouble | None

    @property
    def double(self) -> GrafanaDouble:
        """The double; the test is skipped on a real Grafana, which a test cannot make fail."""
        if self.fake is None:
            pytest.skip("a real Grafana does not fail on demand")
        return self.fake

    def run(self, *words: str, **variables: str) -> Done:
        """Run `fabricscope dashboards …` against it."""
        return run(
            "dashboards", *words, "--grafana", self.url, GRAFANA_TOKEN=self.token, **variables
        )

    def push(self, *words: str, boards: Path = BOARDS, **variables: str) -> Done:
        """Push the test's boards into the test's folder."""
        return self.run("push", "--from", str(boards), "--folder", FOLDER, *words, **variables)

    def hand(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """What a person does in Grafana, and what one sees; None for what is not there."""
        request = urllib.request.Request(  # noqa: S310 - loopback
            f"{self.url}/api{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=COMMAND_SECONDS) as answer:  # noqa: S310
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise

    def board(self, name: str = "first") -> dict[str, Any]:
        """A board as it is there."""
        found = self.hand("GET", f"/dashboards/uid/fabricscope-test-{name}")
        assert isinstance(found, dict), f"no board {name}"
        return found

    def edit(self, title: str) -> None:
        """Rename a panel of the first board, as a person would."""
        found = self.board()
        found["dashboard"]["panels"][0]["title"] = title
        changed = {
            "dashboard": found["dashboard"],
            "folderUid": found["meta"]["folderUid"],
            "message": "a better title",
        }
        assert self.hand("POST", "/dashboards/db", changed)["status"] == "success"

    def clear(self) -> None:
        """Remove everything that tests make."""
        for name in ("first", "second", "third"):
            self.hand("DELETE", f"/dashboards/uid/fabricscope-test-{name}")
        self.hand("DELETE", f"/folders/{FOLDER_UID}")
        self.hand("DELETE", f"/datasources/uid/{FOLDER_UID}")
        for row in self.hand("GET", "/annotations?tags=fabricscope&tags=host:grafana-test") or []:
            self.hand("DELETE", f"/annotations/{row['id']}")


def run(*words: str, **variables: str) -> Done:
    """Run `fabricscope` in this process, with these variables and no others, without pauses."""
    said = io.StringIO()
    with (
        mock.patch.dict(os.environ, variables, clear=True),
        mock.patch.object(connection, "PAUSE_SECONDS_FIRST", 0.0),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        try:
            status = main(list(words))
        except SystemExit as stop:  # argparse's
            status = int(stop.code or 0)
    return Done(status, said.getvalue())


def run_alone(*words: str, **variables: str) -> Done:
    """The same in a process of its own, as a user does it."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=ROOT,
        env={"PATH": os.environ.get("PATH", "")} | variables,
        check=False,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout + done.stderr)


@contextlib.contextmanager
def stand() -> Iterator[Stand]:
    """A Grafana with nothing of ours in it."""
    if url := os.environ.get("GRAFANA_URL"):
        real = Stand(url.rstrip("/"), os.environ["GRAFANA_TOKEN"], None)
        real.clear()
        yield real
        real.clear()
        return
    with GrafanaDouble() as double:
        yield Stand(double.url, ADMIN, double)
