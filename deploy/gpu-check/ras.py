"""Asks NCCL's RAS of this host every two seconds, as text and as JSON, and keeps each answer.

Speaks the protocol of `ncclras` (NCCL 2.24 and later; JSON from 2.28.7), port 28028.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path

ADDRESS = ("127.0.0.1", 28028)
EVERY_SECONDS = 2.0
PATIENCE_SECONDS = 15.0
RAS_SECONDS = 5


def main() -> None:
    with Path(sys.argv[1]).open("a", encoding="utf-8") as answers:
        while True:
            began = time.monotonic()
            for form in ("json", "text"):
                json.dump(asked(form), answers)
                answers.write("\n")
            answers.flush()
            time.sleep(max(0.1, EVERY_SECONDS - (time.monotonic() - began)))


def asked(form: str) -> dict[str, object]:
    """One answer, or why there is none."""
    began, now_ns = time.monotonic(), time.time_ns()
    said: list[str] = []
    error = ""
    try:
        with socket.create_connection(ADDRESS, timeout=PATIENCE_SECONDS) as connection:
            lines = connection.makefile("rw", encoding="utf-8", newline="\n")
            wanted = ["CLIENT PROTOCOL 2", f"TIMEOUT {RAS_SECONDS}"]
            if form == "json":
                wanted.append("SET FORMAT json")
            for line in wanted:
                lines.write(line + "\n")
                lines.flush()
                said.append(lines.readline())
            lines.write("VERBOSE STATUS\n")
            lines.flush()
            said.append(lines.read())
    except OSError as failed:
        error = f"{type(failed).__name__}: {failed}"
    return {
        "time_ns": now_ns,
        "took_s": round(time.monotonic() - began, 3),
        "format": form,
        "said": said,
        "error": error,
    }


if __name__ == "__main__":
    main()
