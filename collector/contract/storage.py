"""How a piece of shared storage is called: the server, and what it gives out.

A host mounts `filer1:/data` at any path; readings, findings and verdicts name it by its server, so
that hosts which mount it at different paths speak of one thing.
"""

from __future__ import annotations


def storage_name(server: str, export: str) -> str:
    """The name of a file system, or of the part of one that a single server has.

    >>> storage_name("filer1", "/data"), storage_name("10.0.1.3@o2ib", "scratch-OST0003")
    ('filer1:/data', '10.0.1.3@o2ib:scratch-OST0003')
    """
    return f"{server}:{export}"


def server_of(storage: str) -> str:
    """The server in a storage's name; empty if it has none.

    >>> server_of("filer1:/data"), server_of("10.0.1.3@o2ib:scratch-OST0003")
    ('filer1', '10.0.1.3@o2ib')
    >>> server_of("[fe80::1]:/a:b"), server_of("nameless")
    ('[fe80::1]', '')
    """
    server, mark, _ = storage.partition(":/")
    return server if mark else storage.rpartition(":")[0]
