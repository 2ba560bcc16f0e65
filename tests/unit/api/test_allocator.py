"""Freed memory goes back: few arenas, trimmed; in processes of their own, as arenas stay."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from api.base import allocator
from api.base.limits import MALLOC_ARENAS_MAX
from tests.stands.environment import clean_environment

POOL = "ARROW_DEFAULT_MEMORY_POOL"
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


def run(program: str, how: str, **given: str) -> dict[str, Any]:
    """What a Python of its own prints, without an allocator that this one's environment names."""
    inherited = {name: text for name, text in clean_environment().items() if name != POOL}
    done = subprocess.run(
        [sys.executable, "-c", program, how],
        cwd=ROOT,
        env=inherited | given,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(how: str) -> dict[str, Any]:
    return run(MANY_THREADS, how)


def test_threads_share_few_arenas() -> None:
    assert measured("bound")["arenas"] <= MALLOC_ARENAS_MAX
    assert measured("as it is")["arenas"] > MALLOC_ARENAS_MAX, "what it is needed for"


def test_freed_memory_goes_back() -> None:
    found = measured("bound")
    freed = 12 * 200 * 60_000
    assert found["before"] - found["after"] > 0.8 * freed, "it was resident, though free"


GROWN_THRESHOLD = """
import ctypes, json, sys
from api.base import allocator

if sys.argv[1] == "bound":
    assert allocator.bound_arenas({})
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = libc.free.argtypes = [ctypes.c_size_t]
# glibc learns from the first that is freed to keep such blocks in its arenas.
libc.free(libc.malloc(20 << 20))
block = libc.malloc(10 << 20)
# The lowest bits of the word before a block: 2 if the block is a mapping of its own.
is_apart = ctypes.c_size_t.from_address(block - 8).value & 2
print(json.dumps({"is_apart": bool(is_apart)}))
"""


def test_large_blocks_lie_apart_whatever_was_freed_before() -> None:
    assert run(GROWN_THRESHOLD, "bound")["is_apart"]
    assert not run(GROWN_THRESHOLD, "as it is")["is_apart"], "what it is needed for"


@pytest.mark.parametrize(("given", "expected"), [({}, "system"), ({POOL: "mimalloc"}, "mimalloc")])
def test_arrow_uses_the_same_allocator_unless_the_user_names_one(
    given: dict[str, str], expected: str
) -> None:
    asked = "import api.data.store.store, json, pyarrow as pa\n"
    asked += "print(json.dumps({'pool': pa.default_memory_pool().backend_name}))"
    assert run(asked, "", **given)["pool"] == expected


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
