"""The rule files that stand in `alerts/rules` are the templates with the default knobs in them.

python -m tests.rules_pack             say which are not
python -m tests.rules_pack --write     write them
"""

from __future__ import annotations

import sys
from pathlib import Path

from alerts.rulebook.knobs import fill_pack

RULES = Path(__file__).resolve().parent.parent / "alerts" / "rules"


def outdated() -> dict[Path, str]:
    """What each file should say that does not say it; an empty text: it should not be there."""
    wanted = {RULES / name: text for name, text in fill_pack().items()}
    wanted |= {path: "" for path in RULES.glob("*.yaml") if path not in wanted}
    return {
        path: text
        for path, text in wanted.items()
        if not path.exists() or path.read_text("utf-8") != text
    }


def main() -> int:
    """The command."""
    stale = outdated()
    for path, text in stale.items():
        if "--write" not in sys.argv:
            print(f"{path.name} is not what its template says: python -m tests.rules_pack --write")
        elif text:
            path.write_text(text, "utf-8")
        else:
            path.unlink()
    return 1 if stale and "--write" not in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
