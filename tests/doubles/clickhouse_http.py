"""A ClickHouse server by URL, for tests: the service's own store process, on a port of loopback.

No package of a ClickHouse server new enough exists where these tests run, so this is the real
engine (chDB) behind the part of ClickHouse's HTTP interface that clickhouse-connect uses
(`api.data.store.owner`). The engine allows one data path in a process, so the server is a
process of its own: `python -m tests.doubles.clickhouse_http DIR` prints its port.
"""

import contextlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from api.data.store.owner import own_store

ROOT = Path(__file__).resolve().parents[2]


def main(folder: str) -> None:
    """Serve the engine on this folder until killed; print the port first."""
    bound = socket.create_server(("127.0.0.1", 0))

    def tell_port(_: object) -> None:
        sys.stdout.write(f"{bound.getsockname()[1]}\n")
        sys.stdout.flush()

    own_store(Path(folder), bound, Path(tempfile.gettempdir()), tell_port)


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    """The `clickhouse://` URL of a server over this folder."""
    command = [sys.executable, "-m", "tests.doubles.clickhouse_http", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield f"clickhouse://127.0.0.1:{port}/default"
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main(sys.argv[1])
