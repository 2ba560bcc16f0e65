"""Compiles `netlink_shim.c`, which leads a real program's netlink socket to a test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")


def compile_shim(folder: Path) -> Path:
    """The library for LD_PRELOAD; skips the test where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler for the shim")
    made = folder / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, SOURCE, "-ldl"], check=True)
    return made
