"""`python -m collector.agent.rollout.check`: whether the document on standard input can be used.

The service runs this as a process of its own: it stands below the agent and imports none of it,
and a hostile document meets a program that holds nothing. Prints nothing and ends with 0, or prints
what is wrong and ends with 1.
"""

from __future__ import annotations

import sys

from collector.agent.rollout.document import check_document
from collector.contract.errors import SettingsError
from collector.contract.rollout import DOCUMENT_BYTES_MAX
from collector.sources import discover


def main() -> int:
    document = sys.stdin.buffer.read(DOCUMENT_BYTES_MAX + 1)
    types = {name: source.Settings for name, source in discover().items()}
    try:
        check_document(document, types, "configuration")
    except SettingsError as error:
        sys.stdout.write(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
