"""SONiC's databases in a real redis, with its numbers and separators, behind the double's server.

What is written to redis, by whatever program, is what the server answers; what changes there comes
to those who listen, by keyspace notifications, as sonic-gnmi learns of changes.
"""

import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.doubles.gnmi_server import tell, wait_until
from tests.doubles.sonic_server import (
    Change,
    Databases,
    SonicServer,
    answer,
    separator_of,
)
from tests.stands.ports import free_port
from tests.tools import peers

NUMBERS = {"APPL_DB": 0, "COUNTERS_DB": 2, "CONFIG_DB": 4, "STATE_DB": 6}
"""Of database_config.json (sonic-swss-common)."""
SECONDS = 10.0


class Redis:
    """A connection: commands as arrays of texts, answers as Python values (RESP2)."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self._file = self._socket.makefile("rb")

    def ask(self, *words: str | int) -> Any:  # noqa: ANN401 - what redis answers
        pieces = [str(word).encode() for word in words]
        body = b"".join(b"$%d\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        self._socket.sendall(b"*%d\r\n%b" % (len(pieces), body))
        return self.hear()

    def hear(self) -> Any:  # noqa: ANN401 - as above
        line = self._file.readline()
        kind, rest = line[:1], line[1:].strip()
        if kind == b"*":
            return [self.hear() for _ in range(int(rest))]
        if kind == b"$":
            return self._file.read(int(rest) + 2)[:-2].decode()
        if kind not in b"+:" or not kind:
            raise OSError(f"redis: {line!r}")
        return rest.decode()

    def forever(self) -> None:
        """Wait for what comes without an end."""
        self._socket.settimeout(None)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._file.close()

    def write(self, databases: Databases) -> None:
        for name, number in NUMBERS.items():
            self.ask("SELECT", number)
            for key, fields in databases.get(name, {}).items():
                self.ask("HSET", key, *(text for pair in fields.items() for text in pair))

    def everything(self) -> Databases:
        found: Databases = {}
        for name, number in NUMBERS.items():
            self.ask("SELECT", number)
            keys = self.ask("KEYS", "*")
            found[name] = {}
            for key in keys:
                flat = self.ask("HGETALL", key)
                found[name][key] = dict(zip(flat[::2], flat[1::2], strict=True))
        return found


class RedisSonicServer(SonicServer):
    """SONiC's server on what redis holds at the moment that it is asked."""

    def __init__(self, port: int) -> None:
        super().__init__({})
        self._port = port
        self._news = Redis(port)
        self._news.ask("PSUBSCRIBE", "__keyspace@*__:*")
        self._news.forever()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def stop_following(self) -> None:
        self._news.close()
        self._thread.join(SECONDS)

    def _read(self) -> Databases:
        connection = Redis(self._port)
        try:
            return connection.everything()
        finally:
            connection.close()

    def _answer(self, database: str, subscription: Any) -> dict[str, Any]:  # noqa: ANN401 - untyped
        path = [element.name for element in subscription.path.elem]
        return answer(self._read(), database, path, is_old=self.is_old)

    def _follow(self) -> None:
        names = {str(number): name for name, number in NUMBERS.items()}
        with suppress(OSError, ValueError):
            while True:
                channel = str(self._news.hear()[2])
                number, _, key = channel.removeprefix("__keyspace@").partition("__:")
                database = names.get(number, "")
                if database:
                    self._tell(database, key)

    def _tell(self, database: str, key: str) -> None:
        table, _, name = key.partition(separator_of(database))
        fields = self._read()[database].get(key, {})
        self.say(Change(database, tell({f"/{table}": {name: fields}})))


@contextmanager
def redis(folder: Path) -> Iterator[int]:
    """A redis of its own, on this machine and in memory alone; its port."""
    port = free_port()
    settings = {
        "bind": "127.0.0.1",
        "port": str(port),
        "save": "",
        "dir": str(folder),
        "notify-keyspace-events": "KEA",  # as SONiC's redis.conf has it
    }
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    program = subprocess.Popen([str(peers.find("redis-server")), *words], stdout=subprocess.DEVNULL)

    def is_there() -> bool:
        with suppress(OSError):
            Redis(port).close()
            return True
        return False

    try:
        wait_until(is_there, "redis listens")
        yield port
    finally:
        program.terminate()
        program.wait(SECONDS)
