"""Files as an operator edits them: how long ago one was last changed."""

import os
import time
from pathlib import Path

from collector.contract.units import NS


def write_aged(path: Path, data: str | bytes, age_s: float) -> None:
    """A file that was last changed so long ago."""
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    changed_ns = time.time_ns() - round(age_s * NS)
    os.utime(path, ns=(changed_ns, changed_ns))
