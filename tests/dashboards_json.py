"""The files in `dashboards/grafana/json` are what the generator makes of the boards.

python -m tests.dashboards_json             say which are not
python -m tests.dashboards_json --write     write them
"""

from __future__ import annotations

import sys
from pathlib import Path

from dashboards.grafana.boards import discover
from dashboards.grafana.classic import text_of

JSON = Path(__file__).resolve().parent.parent / "dashboards" / "grafana" / "json"


def wanted() -> dict[Path, str]:
    """What each file should say."""
    return {JSON / f"{name}.json": text_of(name, board) for name, board in discover().items()}


def outdated() -> dict[Path, str]:
    """What each file should say that does not say it; an empty text: it should not be there."""
    texts = wanted()
    texts |= {path: "" for path in JSON.iterdir() if path not in texts}
    return {
        path: text
        for path, text in texts.items()
        if not path.exists() or path.read_text("utf-8") != text
    }


def main() -> int:
    """The command."""
    stale = outdated()
    for path, text in stale.items():
        if "--write" not in sys.argv:
            print(
                f"{path.name} is not what its board says: python -m tests.dashboards_json --write"
            )
        elif text:
            path.write_text(text, "utf-8")
        else:
            path.unlink()
    return 1 if stale and "--write" not in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
