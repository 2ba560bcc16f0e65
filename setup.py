"""Builds the Grafana dashboards and the rule files into the wheel; all else is in pyproject.toml.

They are made from `dashboards/grafana/boards` and `alerts/rules/templates`, so the repository does
not hold them. Code reads the sources, never these files: a checkout works without them. They are
in the wheel for people who point Grafana or Prometheus at an installed package.
"""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


def rendered() -> dict[str, str]:
    """The text of each file by its path in the wheel."""
    sys.path.insert(0, str(ROOT))
    from alerts.rulebook.knobs import fill_pack  # noqa: PLC0415 - only when a wheel is built
    from dashboards.grafana.boards import discover  # noqa: PLC0415
    from dashboards.grafana.classic import text_of  # noqa: PLC0415

    texts = {f"alerts/rules/{name}": text for name, text in fill_pack().items()}
    for name, board in discover().items():
        texts[f"dashboards/grafana/json/{name}.json"] = text_of(name, board)
    return texts


class BuildPy(build_py):
    """The usual copy of the packages, and the rendered files beside it."""

    def run(self) -> None:
        """Copy, then render. An editable install copies nothing, so it renders nothing."""
        super().run()
        if self.editable_mode:
            return
        for name, text in rendered().items():
            file = Path(self.build_lib, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")


setup(cmdclass={"build_py": BuildPy})
