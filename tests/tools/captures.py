"""Captures of real runs that lie beside the checkout, in `../shared/captures`.

They are too large for the repository. Where there is no `../shared`, their tests are skipped; where
there is one, `tests/unit/test_captures.py` fails with CI=true if a capture is missing. A few that
are cut short lie in `tests/fixtures/diagnose`, for every clone.
"""

from pathlib import Path

SHARED = Path(__file__).resolve().parents[3] / "shared"
CAPTURES = SHARED / "captures"
RINGS = CAPTURES / "h200-ring"
HANGS = CAPTURES / "flight-recorder-hangs"
WANTED = {
    "flight-recorder-hangs": ("gpu_error", "lock_gil"),
    "h200-pipeline": ("healthy", "late0", "uneven"),
    "h200-ring": (
        "ckpt", "compute5", "cpu2", "groups_cpu6", "groups_net3", "half4", "hang6", "healthy",
        "net3", "noisy", "tree_net2",
    ),
}  # fmt: skip
"""Every run that tests read, by its folder."""


def missing(captures: Path = CAPTURES) -> list[str]:
    """Runs that are not there, or that have no truth."""
    return [
        f"{folder}/{run}"
        for folder, runs in WANTED.items()
        for run in runs
        if not (captures / folder / run / "truth.json").is_file()
    ]
