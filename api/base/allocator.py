"""The C library's allocator, set up for a process that lives for months.

glibc makes an arena for nearly every thread, and the service has dozens: what one question needed
stays in the arena of the thread that answered it, free and resident, and no other thread uses it.
And it takes blocks of up to 32 MB from the arenas once such were freed, so that the matrices of a
question lie among what stays, and leave holes. With few arenas, large blocks apart from them, and
freed memory given back now and then, the process keeps what it uses. Arrow uses this allocator too
(`api/__init__.py`); the engine has its own (jemalloc), which gives back by itself.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from api.base.limits import MALLOC_ARENAS_MAX, MALLOC_BLOCK_BYTES_MAX

M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
"""The numbers of mallopt(3) for these bounds, from malloc.h."""
SET_BY_USER = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")
"""Who sets one of these has chosen an allocator or its arenas; ours then stand back."""


def bound_arenas(environment: dict[str, str] | None = None) -> bool:
    """Let threads share few arenas without large blocks; before there are threads.

    False: it was not changed.

    Only glibc has arenas in this sense; other C libraries give memory back as it is freed.
    """
    given = dict(os.environ) if environment is None else environment
    if any(given.get(name) for name in SET_BY_USER):
        return False
    mallopt = symbol("mallopt")
    return (
        mallopt is not None
        and mallopt(M_ARENA_MAX, MALLOC_ARENAS_MAX) == 1
        and mallopt(M_MMAP_THRESHOLD, MALLOC_BLOCK_BYTES_MAX) == 1
    )


def give_back_free_memory() -> bool:
    """Return to the kernel what was freed, in all arenas; takes milliseconds. False: it cannot."""
    trim = symbol("malloc_trim")
    return trim is not None and trim(0) in {0, 1}


def symbol(name: str) -> Callable[..., int] | None:
    """A function of glibc, which alone has `gnu_get_libc_version`; None elsewhere."""
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - asks whether it is there
        found: Callable[..., int] = libc[name]
    except (OSError, AttributeError):
        return None
    return found
