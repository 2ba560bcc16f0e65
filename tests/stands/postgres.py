"""A throw-away PostgreSQL server for tests: its own folder, a Unix socket, no TCP port.

PostgreSQL refuses to run as root. Where the tests run as root, the server runs as `nobody`, in a
folder that belongs to `nobody`.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from sqlalchemy import create_engine, make_url, text

from tests.tools import peers

# Durability is not what these tests ask about; without it a server starts and stops in a blink.
FAST = ["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off"]
# No password on a private socket; text is UTF-8 whatever the machine's locale is.
INITDB_OPTIONS = ["--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8"]
READY_SECONDS = 120
DATABASES = count()
POLL_SECONDS = 0.02


class Server:
    """A server that can be stopped, killed and started again on the same data."""

    def __init__(self, folder: Path, user: str | None) -> None:
        self._folder = folder
        self._user = user
        self._data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql+psycopg://postgres@/postgres?host={folder}"
        """Of the database `postgres`, for SQLAlchemy with psycopg."""

    def create(self, initdb: Path) -> None:
        subprocess.run(
            [str(initdb), "-D", str(self._data), "-U", "postgres", *INITDB_OPTIONS],
            user=self._user,
            cwd=self._folder,
            check=True,
            capture_output=True,
        )

    def start(self) -> None:
        postgres = peers.find("postgres")
        log = self._folder / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(postgres), "-D", str(self._data), "-k", str(self._folder), "-h", "", *FAST],
                user=self._user,
                cwd=self._folder,
                stdout=output,
                stderr=output,
            )
        wait_until_ready(self._process, self._data, log)

    def stop(self) -> None:
        """PostgreSQL's "fast" shutdown: clients are disconnected."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(READY_SECONDS)
            self._process = None


@contextmanager
def stoppable() -> Iterator[Server]:
    """A running server with an empty database `postgres`."""
    initdb, postgres = peers.find("initdb"), peers.find("postgres")
    if initdb is None or postgres is None:
        raise peers.PeerError("PostgreSQL is not here: make peers, or as root make peers-system")
    # Not pytest's tmp_path: as root, its parents are closed to everyone else. And short, because
    # the path of a Unix socket may have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="fs-pg-", dir="/tmp"))
    user: str | None = None
    if os.geteuid() == 0:
        user = "nobody"
        account = pwd.getpwnam(user)
        os.chown(folder, account.pw_uid, account.pw_gid)
    made = Server(folder, user)
    try:
        made.create(initdb)
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def server() -> Iterator[str]:
    """The URL of an empty database `postgres`, for SQLAlchemy with psycopg."""
    with stoppable() as made:
        yield made.url


def wait_until_ready(process: subprocess.Popen[bytes], data: Path, log: Path) -> None:
    """Return once the server says in its pid file that it takes connections."""
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        pid_file = data / "postmaster.pid"
        if pid_file.exists() and "ready" in pid_file.read_text():
            return
        time.sleep(POLL_SECONDS)
    raise peers.PeerError(f"PostgreSQL did not start:\n{log.read_text()[-2000:]}")


def new_database(server_url: str, template: str = "") -> str:
    """The URL of a database of its own on this server: empty, or as the template's URL has it.

    Nothing may be connected to the template.
    """
    server = make_url(server_url)
    name = f"test_{os.getpid()}_{next(DATABASES)}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        version = connection.dialect.server_version_info or (0,)
        # A locale in which "a" comes before "B": names must come in byte order all the same.
        icu = "LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'" if version >= (15,) else ""
        source = make_url(template).database if template else f"template0 {icu}"
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {source}"))
    engine.dispose()
    return server.set(database=name).render_as_string(hide_password=False)
