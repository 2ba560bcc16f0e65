"""What every test gets: peers or a clear skip, golden files, and no way to the outside.

- `@pytest.mark.peer("prometheus")`: skipped when the program is missing, and the last lines of the
  run name it; with CI=true a missing peer is an error, so that nothing is skipped there unseen.
- `golden(path, text)`: the text must equal the file; `make golden` rewrites the file instead.
- A test's connection to anything but this machine's loopback is refused.
- Of dear files a third runs, and of the cases of `@pytest.mark.rotating(parts)` a part, in turn
  (`tests.tools.cut`).
- Where several processes share the tests (`make test`), the dearest files are begun first.
"""

import difflib
import gc
import ipaddress
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import hypothesis
import pytest

from api.base.packages import leave_out_needless
from tests.tools import peers
from tests.tools.costs import Costs
from tests.tools.cut import CUT, DEAR, VARIABLE

# No deadline: how long one example takes depends more on the machine's load than on the code.
hypothesis.settings.register_profile("cut", deadline=None, max_examples=CUT.examples(100))
hypothesis.settings.load_profile("cut")

MISSING_PEERS = pytest.StashKey[set[str]]()
MISSING_PEERS_SENT = "missing_peers"
"""The same, on its way from a process that runs tests to the one that prints."""
ROOT = Path(__file__).resolve().parent.parent

GC_THRESHOLDS = (100_000, 50, 50)
"""A process that collects twelve thousand tests, and modules for them, keeps all of it; with
Python's own thresholds it looks at that again and again."""


class Golden(Protocol):
    """Compares a text with a golden file."""

    def __call__(self, path: Path, text: str) -> None: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite golden files with what the code gives now (make golden)",
    )


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(*GC_THRESHOLDS)
    leave_out_needless()  # as the service does: with it, Arrow answers some questions differently
    config.stash[MISSING_PEERS] = set()
    config.pluginmanager.register(Costs(), "costs")
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(CUT.seed)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell that starts us in the background ignores it, and so would all that tests start.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.freeze()


# --- peers -------------------------------------------------------------------------------------


def pytest_runtest_setup(item: pytest.Item) -> None:
    wanted = [name for marker in item.iter_markers("peer") for name in marker.args]
    missing = [name for name in wanted if peers.find(name) is None]
    if not missing:
        return
    item.config.stash[MISSING_PEERS].update(missing)
    reason = f"missing peer: {', '.join(missing)}"
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(f"{reason} (with CI=true every peer must be there)", pytrace=False)
    pytest.skip(reason)


def pytest_sessionfinish(session: pytest.Session) -> None:
    missing = session.config.stash[MISSING_PEERS]
    sent: dict[str, list[str]] | None = getattr(session.config, "workeroutput", None)
    if sent is not None:
        sent[MISSING_PEERS_SENT] = sorted(missing)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - xdist ships no types
    # One that has crashed sends nothing, and its tests have failed.
    sent: dict[str, list[str]] = getattr(node, "workeroutput", {})
    node.config.stash[MISSING_PEERS].update(sent.get(MISSING_PEERS_SENT, ()))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Iterator[None]:
    # A wrapper around all others: what is printed after them stands last, where it is read.
    yield
    missing = config.stash[MISSING_PEERS]
    for name in sorted(missing):
        terminalreporter.write_line(
            f"missing peer: {name}; its tests did not run (make peers; as root: make peers-system)",
            yellow=True,
        )


# --- a part of the long proofs -----------------------------------------------------------------


def pytest_report_header() -> str:
    if CUT.is_all:
        return "cut: all, every long proof in full"
    return f"cut: {CUT}, a part of the long proofs (again: {VARIABLE}={CUT}; all: make test-all)"


def keep_cut(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not of this run's files and parts; a file that was named is wanted."""
    taken = CUT.files(DEAR)
    named = {(config.invocation_params.dir / word).resolve() for word in config.args}
    cases: dict[tuple[str, tuple[int, str, int | None]], list[pytest.Item]] = {}
    left_out: set[pytest.Item] = set()
    for item in items:
        path, function = place_of(item), item.nodeid.partition("[")[0]
        if path in DEAR and path not in taken and item.path not in named:
            left_out.add(item)
        for marker in item.iter_markers("rotating"):
            parts, name = (*marker.args, function)[:2]
            chosen_by = parts, name, marker.kwargs.get("turn")
            cases.setdefault((function, chosen_by), []).append(item)
    for (_, chosen_by), group in cases.items():
        left_out |= set(group) - set(CUT.choose(group, *chosen_by))
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def place_of(item: pytest.Item) -> str:
    """Its file, as the table of dear files has it."""
    return item.path.relative_to(ROOT).as_posix() if item.path.is_relative_to(ROOT) else ""


# --- several processes -------------------------------------------------------------------------


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not of this run's cut, and begin with the dearest files.

    The dearest first, so that at the end no process waits for another.
    """
    # A person who names one case wants that one.
    if not any("::" in word for word in config.args):
        keep_cut(config, items)
    if not hasattr(config, "workerinput"):
        return  # one process: the order in which people look for things
    seconds = {path: one.seconds for path, one in DEAR.items()}
    items.sort(key=lambda item: -seconds.get(place_of(item), 0.0))


# --- golden files ------------------------------------------------------------------------------


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(path, text)` asserts that the file holds the text, or rewrites the file."""
    updating = bool(request.config.getoption("--update-golden"))

    def compare(path: Path, text: str) -> None:
        if updating:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        expected = path.read_text(encoding="utf-8") if path.exists() else ""
        if text == expected:
            return
        difference = difflib.unified_diff(
            expected.splitlines(keepends=True),
            text.splitlines(keepends=True),
            fromfile=str(path),
            tofile="this run",
        )
        pytest.fail(
            f"{path.name} differs; if this run is right: make golden\n{''.join(difference)}",
            pytrace=False,
        )

    return compare


# --- no way out --------------------------------------------------------------------------------


def is_local(family: int, address: object) -> bool:
    """Whether an address stays on this machine."""
    if family == socket.AF_UNIX:
        return True
    if family not in {socket.AF_INET, socket.AF_INET6}:
        return True  # netlink and its like: they reach the kernel, no network
    if not isinstance(address, tuple) or not address:
        return False
    host = str(address[0])
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name: looking it up would already ask the network


def local_only(connect: Callable[..., Any]) -> Callable[..., Any]:
    """The same socket method, refusing every address that is not on this machine."""

    def guarded(self: socket.socket, address: object) -> Any:  # noqa: ANN401 (connect_ex gives int)
        if not is_local(self.family, address):
            # No OSError: the code under test handles those, and would hide the mistake.
            raise RuntimeError(f"a test tried to reach {address!r}; only loopback is allowed")
        return connect(self, address)

    return guarded


@pytest.fixture(autouse=True, scope="session")
def _loopback_only() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for method in ("connect", "connect_ex"):
            patch.setattr(socket.socket, method, local_only(getattr(socket.socket, method)))
        yield
