"""Freed memory goes back: few arenas, trimmed; in processes of their own, as arenas stay."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest

from api.base import allocator
from api.base.limits import MALLOC_ARENAS_MAX
from tests.stands.environment import clean_environment

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(
    allocator.symbol("mallopt") is None, reason="the C library is not glibc"
)

MANY_THREADS = """
import ctypes, json, re, sys, threading, tempfile
from pathlib import Path
from api.base import allocator

if sys.argv[1] == "bound":
    assert allocator.bound_arenas({})
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = libc.free.argtypes = [ctypes.c_size_t]
barrier = threading.Barrier(12)

def work():
    # Pieces that lie among others, as those of a question do: the last of each pair stays.
    barrier.wait()
    pairs = [(libc.malloc(60_000), libc.malloc(2_000)) for _ in range(200)]
    for large, _ in pairs:
        libc.memset(ctypes.c_void_p(large), 1, 60_000)
    barrier.wait()
    for large, _ in pairs:
        libc.free(large)

threads = [threading.Thread(target=work) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()

def anonymous():
    text = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"^Anonymous: +(\\d+)", text, re.M)[1]) * 1024

def arenas():
    with tempfile.TemporaryFile("w+") as file:
        stream = libc.fdopen
        stream.restype = ctypes.c_void_p
        out = stream(file.fileno(), b"w")
        libc.malloc_info(0, ctypes.c_void_p(out))
        libc.fflush(ctypes.c_void_p(out))
        file.seek(0)
        return file.read().count("<heap nr=")

before = anonymous()
assert allocator.give_back_free_memory()
print(json.dumps({"arenas": arenas(), "before": before, "after": anonymous()}))
"""


def measured(how: str) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", MANY_THREADS, how],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_threads_share_few_arenas() -> None:
    assert measured("bound")["arenas"] <= MALLOC_ARENAS_MAX
    assert measured("as it is")["arenas"] > MALLOC_ARENAS_MAX, "what it is needed for"


def test_freed_memory_goes_back() -> None:
    found = measured("bound")
    freed = 12 * 200 * 60_000
    assert found["before"] - found["after"] > 0.8 * freed, "it was resident, though free"


@pytest.mark.parametrize("name", allocator.SET_BY_USER)
def test_a_user_s_own_choice_stands(name: str) -> None:
    assert not allocator.bound_arenas({name: "4"})


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Musl:
        def __init__(self, name: object) -> None:
            del name

    monkeypatch.setattr(ctypes, "CDLL", Musl)
    assert not allocator.bound_arenas({})
    assert not allocator.give_back_free_memory()
