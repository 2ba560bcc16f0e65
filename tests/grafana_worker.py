"""Runs `fabricscope` commands one after the other in `.venv-grafana`, for tests.

Importing grafana-client takes a second; tests run dozens of commands. So one process does them all:
a line of JSON in (words and variables), a line of JSON out (status and text).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys

from collector.cli import main
from dashboards.grafana import connection

PAUSE_SECONDS = 0.001
"""Between attempts: tests do not wait."""


def serve() -> None:
    """Answer until there is nothing to read."""
    connection.PAUSE_SECONDS_FIRST = PAUSE_SECONDS
    answers = sys.stdout
    for line in sys.stdin:
        asked = json.loads(line)
        os.environ.clear()
        os.environ.update(asked["variables"])
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                status = main(asked["words"])
            except SystemExit as stop:  # argparse's
                status = int(stop.code or 0)
        answers.write(json.dumps({"status": status, "text": said.getvalue()}) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
