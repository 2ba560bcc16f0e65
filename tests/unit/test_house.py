"""The house keeps its promises: peers start, golden files compare, tests cannot reach outside."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy

from tests.conftest import Golden, is_local
from tests.stands import postgres
from tests.stands.ports import free_port, own_ports
from tests.tools import peers

PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.conftest"]
PYTEST += ["-c", "pyproject.toml"]
SHARED = ("-n", "1", "--dist", "loadfile", "--no-loadscope-reorder")
"""As `make test` has it, with one process beside the one that prints."""


@pytest.mark.parametrize(
    "name", [pytest.param(peer.name, marks=pytest.mark.peer(peer.name)) for peer in peers.table()]
)
def test_every_peer_starts(name: str) -> None:
    program = peers.find(name)
    assert program is not None
    assert peers.version(program)


def test_a_bad_line_of_the_table_is_named() -> None:
    with pytest.raises(peers.PeerError, match=r"peers\.txt:2: .*'prometheus sometimes'"):
        peers.read_table("# comment\nprometheus sometimes\n")


def test_of_several_versions_the_newest_is_taken(tmp_path: Path) -> None:
    for version in ("9", "15"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "postgres").touch()
    assert peers.newest(tmp_path, "*/postgres") == tmp_path / "15/postgres"


@pytest.mark.peer("initdb")
@pytest.mark.peer("postgres")
def test_postgres_serves_whoever_runs_the_tests() -> None:
    with postgres.server() as url:
        engine = sqlalchemy.create_engine(url)
        with engine.connect() as connection:
            assert connection.scalar(sqlalchemy.text("select 6 * 7")) == 42
        engine.dispose()


@pytest.mark.parametrize("shared", [(), SHARED], ids=["alone", "shared"])
@pytest.mark.parametrize("mode", ["skip", "ci"])
def test_a_missing_peer_is_skipped_and_named_but_fails_ci(
    tmp_path: Path, mode: str, shared: tuple[str, ...]
) -> None:
    test = tmp_path / "test_absent.py"
    test.write_text('import pytest\n@pytest.mark.peer("vmalert")\ndef test_it() -> None: ...\n')
    # `find` is answered by a plug-in, so that this test does not depend on what is unpacked here.
    (tmp_path / "no_peers.py").write_text(
        "from tests.tools import peers\npeers.find = lambda name: None\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{peers.ROOT}:{tmp_path}"}
    environment["CI"] = "true" if mode == "ci" else ""
    done = subprocess.run(
        [*PYTEST, "-q", "-p", "no_peers", *shared, str(test)],
        cwd=peers.ROOT,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert "missing peer: vmalert" in done.stdout.splitlines()[-2]
    assert ("1 error" if mode == "ci" else "1 skipped") in done.stdout.splitlines()[-1]


def test_a_port_is_given_out_once() -> None:
    ports = [free_port() for _ in range(20)]
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as taker:
            taker.bind(("127.0.0.1", port))


def test_a_port_that_somebody_has_is_not_given_out() -> None:
    have = socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, have) as somebody:
        somebody.bind(("127.0.0.1", free_port(have)))
        taken = somebody.getsockname()[1]
        assert taken not in {free_port(have) for _ in range(len(own_ports()))}


def test_processes_that_run_tests_side_by_side_have_their_own_ports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    first = own_ports()
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    assert not set(first) & set(own_ports())


def test_golden_shows_the_difference(
    tmp_path: Path, golden: Golden, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--update-golden"):
        pytest.skip("nothing fails while golden files are rewritten")
    file = tmp_path / "expected.txt"
    file.write_text("one\ntwo\n")
    golden(file, "one\ntwo\n")
    with pytest.raises(pytest.fail.Exception, match=r"(?s)make golden.*-two\n\+three"):
        golden(file, "one\nthree\n")


@pytest.mark.parametrize("host", ["192.0.2.1", "example.com", "0.0.0.0"])  # noqa: S104 (refused)
def test_the_outside_is_out_of_reach(host: str) -> None:
    with (
        socket.socket() as out,
        pytest.raises(RuntimeError, match="only loopback is allowed"),
    ):
        out.connect((host, 9))


@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, ("127.0.0.1", 1)),
        (socket.AF_INET, ("127.9.9.9", 1)),
        (socket.AF_INET6, ("::1", 1, 0, 0)),
        (socket.AF_UNIX, "/run/x.sock"),
    ],
)
def test_this_machine_is_in_reach(family: int, address: object) -> None:
    assert is_local(family, address)
