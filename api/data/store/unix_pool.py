"""ClickHouse's HTTP interface over a Unix socket: the client's side of `api.data.store.owner`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from urllib3 import HTTPConnectionPool, PoolManager
from urllib3.connection import HTTPConnection
from urllib3.exceptions import NewConnectionError

from api.base.unix_sockets import STORE_AWAY, connect_unix

CONNECTED_SECONDS_MAX = 10.0
"""How long a connection may take: the other end accepts at once, unless it is overwhelmed."""


def unix_pool(path: Path) -> PoolManager:
    """A pool whose connections all go to this socket, whatever the URL's host is."""

    class Connection(HTTPConnection):
        """One that finds its other end by a path."""

        def connect(self) -> None:
            try:
                self.sock = connect_unix(path, CONNECTED_SECONDS_MAX)
            except OSError as error:
                words = f"{STORE_AWAY}: {error.strerror}"
                raise NewConnectionError(self, words) from error
            if isinstance(self.timeout, int | float):
                self.sock.settimeout(self.timeout)

    class Pool(HTTPConnectionPool):
        """Of such connections."""

        ConnectionCls = Connection

    manager = PoolManager(num_pools=1, maxsize=1)
    pools: dict[str, Any] = {"http": Pool}
    manager.pool_classes_by_scheme = pools
    return manager
