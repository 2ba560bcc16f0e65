"""`fabricscope backup`: store and inventory of a running service, in one file.

The service makes it: an embedded engine allows one process on its folder, and only the service
knows what it has acknowledged. So this needs a token (admin) and no access to the data folder.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from api.remote.client import Client, ServiceError, Target
from collector.contract.client_flags import add_client_flags
from collector.contract.errors import SettingsError
from collector.contract.progress import MIB, Progress, of_bytes

EXIT_FAILED = 1
BEGIN_SECONDS_MAX = 900.0
"""Until the first byte, and between two: the service copies the inventory first."""
BYTES_HEADER = "x-fabricscope-bytes"
PRIVATE = 0o600
"""It holds the digests of tokens and the key of links in notices."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        type=Path,
        metavar="FILE|DIR",
        help="the new archive (tar); in a folder it is called fabricscope-TIME.tar",
    )
    add_client_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """0, or 1 if the service did not answer with a whole archive; then no file is left."""
    file = file_of(arguments.target)
    target = Target.of(arguments, "admin")
    target.read_token()
    client = Client(target, "backup")
    try:
        with written(file) as output:
            size = fetch(client, output)
    except ServiceError as error:
        print(f"fabricscope: no backup was made: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        client.close()
    print(f"{file}: {size / MIB:.1f} MiB; fabricscope restore {file} --data DIR brings it back")
    return 0


def file_of(target: Path) -> Path:
    """The file to be made. SettingsError if it exists, or its folder does not."""
    if target.is_dir():
        target /= f"fabricscope-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}.tar"
    if target.exists():
        raise SettingsError(f"{target} exists; name a new file, or a folder")
    if not target.absolute().parent.is_dir():
        raise SettingsError(f"{target}: there is no folder {target.absolute().parent}")
    return target


@contextlib.contextmanager
def written(file: Path) -> Iterator[IO[bytes]]:
    """The file, under another name until it is whole and on the disk."""
    partial = file.with_name(f"{file.name}.partial")
    try:
        opened = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE)
        with os.fdopen(opened, "wb") as output:
            yield output
            output.flush()
            os.fsync(output.fileno())
        partial.replace(file)
    except OSError as error:
        raise SettingsError(f"{partial} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


def fetch(client: Client, output: IO[bytes]) -> int:
    """Write the archive; its size. Raises ServiceError where it ends too early."""
    progress = Progress()
    size = 0
    with client.open("/v1/backup", {}, silence_s=BEGIN_SECONDS_MAX) as answer:
        about = answer.headers.get(BYTES_HEADER, "")
        total = int(about) if about.isdecimal() else 0
        for piece in answer.iter_bytes():
            output.write(piece)
            size += len(piece)
            progress.say(f"backup: {of_bytes(size, max(total, size))}")
    progress.end()
    return size
