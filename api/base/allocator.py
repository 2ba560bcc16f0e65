"""Allocators, set up for a process that lives for months.

glibc makes an arena for nearly every thread, and the service has dozens: what one question needed
stays in the arena of the thread that answered it, free and resident, and no other thread uses it.
Arrow's own allocator (mimalloc) does the same with a heap for each thread, and cannot be made to
give it back. So Arrow uses the C library's, threads share few arenas, and freed memory is given
back now and then. The engine has an allocator of its own (jemalloc), which gives back by itself.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

import pyarrow as pa

from api.base.limits import MALLOC_ARENAS_MAX

M_ARENA_MAX = -8
"""The number of mallopt(3) for this bound, from malloc.h."""
ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
"""Where a user names an allocator for Arrow."""
SET_BY_USER = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "LD_PRELOAD")
"""Who sets one of these has chosen an allocator or its arenas; ours then stand back."""


def set_up() -> None:
    """One allocator for Python, numpy and Arrow, with few arenas; before there are threads."""
    bound_arenas()
    if not os.environ.get(ARROW_POOL):
        pa.set_memory_pool(pa.system_memory_pool())


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
