"""The C library's allocator, set up for a process that lives for months.

glibc makes an arena for nearly every thread, and the service has dozens: what one question needed
stays in the arena of the thread that answered it, free and resident, and no other thread uses it.
With few arenas, and with freed memory given back now and then, the process keeps what it uses. The
engine (jemalloc) and Arrow (mimalloc) have allocators of their own; those did not grow in a soak.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from api.base.limits import MALLOC_ARENAS_MAX

M_ARENA_MAX = -8
"""The number of mallopt(3) for this bound, from malloc.h."""
SET_BY_USER = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "LD_PRELOAD")
"""Who sets one of these has chosen an allocator or its arenas; ours then stand back."""


def bound_arenas(environment: dict[str, str] | None = None) -> bool:
    """Let threads share few arenas; before there are threads. False: it was not changed.

    Only glibc has arenas in this sense; other C libraries give memory back as it is freed.
    """
    given = dict(os.environ) if environment is None else environment
    if any(given.get(name) for name in SET_BY_USER):
        return False
    mallopt = symbol("mallopt")
    return mallopt is not None and mallopt(M_ARENA_MAX, MALLOC_ARENAS_MAX) == 1


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
