"""Pictures of the built-in page for the documentation, one for each view.

    make page && python -m tests.tools.page_pictures [--only NAME …] [--out DIR]

The data is `tests.worlds.page_data`, the browser Chromium.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser

from tests.stands.browser import PHONE_WIDTH, WIDTH, chromium, watched
from tests.tools.png import read_png, write_png
from tests.worlds.page_data import CULPRIT, END_S, START_S, VICTIM_JOB, Stage, served

PICTURES = Path(__file__).resolve().parents[2] / "docs/images/page"
BYTES_MAX = 300_000
SPAN = f"from={START_S}&to={END_S}"
INCIDENT = "/incident/{incident}"


@dataclass(frozen=True)
class Shot:
    """An address of the page, and how it is looked at."""

    address: str
    width: int = WIDTH
    is_dark: bool = False


SHOTS = {
    "now": Shot("/"),
    "incident": Shot(INCIDENT),
    "fabric": Shot(f"/fabric?{SPAN}&colour=pause"),
    "job": Shot(f"/job/{VICTIM_JOB}?{SPAN}&rank=1"),
    "matrix": Shot(f"/matrix?job=pretrain&{SPAN}"),
    "steps": Shot(f"/compare/steps/{VICTIM_JOB}?incident={{incident}}"),
    "explore": Shot(f"/explore?query=fabric_gpu_temperature_celsius&{SPAN}"),
    "hosts": Shot("/hosts"),
    "host": Shot(f"/hosts/{CULPRIT}"),
    "settings": Shot("/settings"),
    "incident-dark": Shot(INCIDENT, is_dark=True),
    "now-phone": Shot("/", width=PHONE_WIDTH),
}


def photographed(browser: Browser, stage: Stage, shot: Shot) -> bytes:
    """The whole view as a PNG of few colours."""
    found = stage.service.client.get("/v1/incidents", params={"cause": "straggler"}).json()
    address = shot.address.format(incident=found["items"][0]["id"])
    with watched(browser, stage.url, now_s=END_S, width=shot.width, is_dark=shot.is_dark) as seen:
        seen.open(address)
        return write_png(read_png(seen.page.screenshot(full_page=True)))


def main(arguments: Sequence[str]) -> int:
    """Take them; a picture that is too large for the documentation is a failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="names of pictures")
    parser.add_argument("--out", type=Path, default=PICTURES)
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    too_large = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder)) as stage,
        chromium() as browser,
    ):
        for name, shot in SHOTS.items():
            if chosen.only and name not in chosen.only:
                continue
            picture = photographed(browser, stage, shot)
            (chosen.out / f"{name}.png").write_bytes(picture)
            too_large += len(picture) > BYTES_MAX
            print(f"{name}: {len(picture) / 1_000:.0f} kB")
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
