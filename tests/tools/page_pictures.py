"""Pictures of the built-in page for the documentation, one for each view.

    make page && python -m tests.tools.page_pictures [--only NAME …] [--out DIR]
    python -m tests.tools.page_pictures --out DIR --url http://127.0.0.1:9700 --dark --width 390

The data is `tests.worlds.page_data`, the browser Chromium. With ``--url`` a service that runs is
photographed, say that of `make demo ARGS="--fault slow_nic"` after it has found the fault; such
pictures are for the eye, as they are never the same twice.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser

from api.data.inventory.incidents import moment_of
from api.data.inventory.rollout_model import AgentConfiguration
from collector.contract.rollout import LOCAL_VERSION
from collector.contract.units import NS
from tests.stands.browser import PHONE_WIDTH, WIDTH, Watched, chromium, watched
from tests.tools.png import read_png, write_png
from tests.worlds.page_data import CULPRIT, END_S, START_S, VICTIM_JOB, Stage, served

PICTURES = Path(__file__).resolve().parents[2] / "docs/images/page"
BYTES_MAX = 150_000
REQUEST_SECONDS = 60.0
BEFORE_SECONDS, AFTER_SECONDS = 300, 60
"""Of a service that runs, the time around the incident."""
INCIDENT = "/incident/{incident}"


@dataclass(frozen=True)
class Shot:
    """An address of the page, and how it is looked at."""

    address: str
    width: int = WIDTH
    is_dark: bool = False
    follow: str = ""
    """The name of a link that is clicked first."""
    height_max: int | None = None
    """Only the beginning of the view; else all of it."""


SHOTS = {
    "now": Shot("/"),
    "incident": Shot(INCIDENT),
    "fabric": Shot("/fabric?{span}&colour=pause"),
    "fabric-incident": Shot("/incident/{link}", follow="In the fabric"),
    "job": Shot("/job/{job}?{span}&rank=1"),
    "matrix": Shot("/matrix?job={other}&{span}"),
    "compare": Shot("/compare?a={other}&b={job}&{span}"),
    "steps": Shot("/compare/steps/{job}?incident={incident}", height_max=1500),
    "costs": Shot("/costs"),
    "explore": Shot("/explore?query=fabric_gpu_temperature_celsius&{span}"),
    "hosts": Shot("/hosts"),
    "host": Shot("/hosts/{host}"),
    "settings": Shot("/settings"),
    "rollouts": Shot("/settings/rollouts"),
    "incident-dark": Shot(INCIDENT, is_dark=True),
    "now-phone": Shot("/", width=PHONE_WIDTH),
}


@dataclass(frozen=True)
class Scene:
    """A service, and what stands in the addresses of its views."""

    url: str
    names: Mapping[str, str]
    now_s: float | None = None
    """Where its clock stands."""


# --- what is photographed -------------------------------------------------------------------------


@contextlib.contextmanager
def staged() -> Iterator[Scene]:
    """The simulated cluster whose clock stands, with a configuration that is rolled out."""
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as stage:
        client = stage.service.client
        roll_out(stage)
        names = {
            "incident": newest(client, cause="straggler")["id"],
            "link": newest(client, cause="pause_storm")["id"],
            "job": VICTIM_JOB,
            "other": "pretrain",
            "host": CULPRIT,
            "span": f"from={START_S}&to={END_S}",
        }
        yield Scene(stage.url, names, END_S)


def roll_out(stage: Stage) -> None:
    """Half of six agents are told a configuration: two kept it, one tries it."""
    at = moment_of(END_S * NS)
    kept: list[tuple[int, int | None]] = [(1, None), (1, None), (LOCAL_VERSION, 1)]
    kept += [(LOCAL_VERSION, None)] * 3
    said = [
        AgentConfiguration(agent=f"node{n:04}", at=at, heard_at=at, good=good, trying=trying)
        for n, (good, trying) in enumerate(kept)
    ]
    wish = {
        "document": "[sources.netdev]\ninterval_seconds = 2.0\n",
        "by": "ann",
        "why": "half the cost of netdev",
        "shares": [50, 100],
    }
    stage.service.client.post("/v1/configurations", json=wish).raise_for_status()
    stage.service.inventory.rollouts.write_reports(said)
    stage.service.context.rollouts.look()


def running(url: str) -> Scene:
    """A service that runs: its newest incident, and the time around it."""
    with httpx.Client(base_url=url, timeout=REQUEST_SECONDS) as client:
        incident = newest(client)
        jobs = [one["id"] for one in client.get("/v1/jobs").raise_for_status().json()["items"]]
    job = next(iter(incident["jobs"] or jobs), "")
    since_s = incident["since_ns"] / NS
    end_s = min(time.time(), (incident["until_ns"] or time.time_ns()) / NS + AFTER_SECONDS)
    names = {
        "incident": incident["id"],
        "link": incident["id"],
        "job": job,
        "other": next((one for one in jobs if one != job), job),
        "host": incident["culprit"].get("host", ""),
        "span": f"from={since_s - BEFORE_SECONDS:.0f}&to={end_s:.0f}",
    }
    return Scene(url, names)


def newest(client: httpx.Client, **wanted: str) -> Any:  # noqa: ANN401 - JSON
    """The latest incident of this kind."""
    found = client.get("/v1/incidents", params=wanted).raise_for_status().json()["items"]
    assert found, f"no incident of {wanted or 'any kind'} at {client.base_url}: wait for one"
    return found[0]


# --- taking pictures ------------------------------------------------------------------------------


def photographed(browser: Browser, scene: Scene, shot: Shot) -> bytes:
    """The view as a PNG of few colours."""
    with watched(
        browser, scene.url, now_s=scene.now_s, width=shot.width, is_dark=shot.is_dark
    ) as seen:
        seen.open(shot.address.format(**scene.names))
        if shot.follow:
            seen.page.get_by_role("link", name=shot.follow).first.click()
            seen.settle()
        return write_png(read_png(taken(seen, shot)))


def taken(seen: Watched, shot: Shot) -> bytes:
    if shot.height_max is None:
        return seen.page.screenshot(full_page=True)
    # Not a clip of the whole: what sticks to the window's edges would stand in the middle.
    seen.page.set_viewport_size({"width": shot.width, "height": shot.height_max})
    seen.settle()
    return seen.page.screenshot()


def main(arguments: Sequence[str]) -> int:
    """Take them; a picture that is too large for the documentation is a failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], choices=[*SHOTS], metavar="NAME")
    parser.add_argument("--out", type=Path, default=PICTURES)
    parser.add_argument("--url", help="a service that runs (default: one with data of its own)")
    parser.add_argument("--dark", action="store_true", help="all of them dark")
    parser.add_argument("--width", type=int, help=f"all of them so wide, say {PHONE_WIDTH}")
    chosen = parser.parse_args(arguments)
    is_own = (chosen.url, chosen.dark, chosen.width) == (None, False, None)
    if chosen.out == PICTURES and not is_own:
        parser.error("--url, --dark and --width need --out: the documentation's are always alike")
    chosen.out.mkdir(parents=True, exist_ok=True)
    too_large = 0
    with (
        contextlib.nullcontext(running(chosen.url)) if chosen.url else staged() as scene,
        chromium() as browser,
    ):
        for name, shot in SHOTS.items():
            if chosen.only and name not in chosen.only:
                continue
            picture = photographed(
                browser,
                scene,
                replace(
                    shot,
                    width=chosen.width or shot.width,
                    is_dark=chosen.dark or shot.is_dark,
                ),
            )
            (chosen.out / f"{name}.png").write_bytes(picture)
            too_large += is_own and len(picture) > BYTES_MAX
            print(f"{name}: {len(picture) / 1_000:.0f} kB", flush=True)
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
