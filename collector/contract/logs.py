"""How every program of ours logs: one plain line per message on standard error."""

from __future__ import annotations

import logging
import sys

LOG_LEVELS = ("debug", "info", "warning", "error")


def set_up_logging(level: str) -> None:
    """Log from this level on; the journal adds nothing that is not in a line."""
    logging.basicConfig(
        level=level.upper(),
        format="%(asctime)s %(levelname)-7s %(message)s",
        stream=sys.stderr,
        force=True,
    )
    # They log every request and every connection.
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
