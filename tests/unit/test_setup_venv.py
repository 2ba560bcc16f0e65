"""`make setup`: uv installs where it can be had, and pip where it cannot or where uv fails.

The environment's Python and uv are shell scripts that note how they were called.
"""

from pathlib import Path

import pytest

from tests.tools import setup_venv
from tests.tools.setup_venv import Environment, SetupError, setup, uv_variables

PYTHON = """#!/bin/bash
shift 2
echo "pip $*" >>"{calls}"
case "$*" in
  "config list") echo "global.index-url='file:///one'" ;;
  list*) echo "[]" ;;
  *uv.lock) cat "${{@: -1}}" >>"{lines}"; {fetch} ;;
  *) {pip} ;;
esac
"""
UV = """#!/bin/sh
shift
echo "uv $* from $UV_DEFAULT_INDEX" >>"{calls}"
{uv}
"""
FETCH = 'printf "%s" "$UV_SCRIPT" >"{uv}" && chmod +x "{uv}"'
WITH_UV = """\
other==2.0 \\
    --hash=sha256:01
uv==1.0 \\
    --hash=sha256:02 \\
    --hash=sha256:03
zero==1.0 \\
    --hash=sha256:04
"""
REAL_CALLS = [
    "install --no-deps --require-hashes -r {lock}",
    "install --no-deps --no-build-isolation -e .",
    "check",
]


class Machine:
    """An environment whose pip and uv do what a test wants of them."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self._monkeypatch = root, monkeypatch
        self.environment = Environment(root / "venv", root / "some.lock", holds_us=True)
        self.environment.lock.write_text(WITH_UV)
        monkeypatch.setattr(setup_venv, "create_venv", lambda _: None)
        monkeypatch.delenv("SETUP_INSTALLER", raising=False)
        monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
        (root / "venv/bin").mkdir(parents=True)

    def prepare(self, *, fetch: str = FETCH, uv: str = "", pip: str = "") -> None:
        """Say in shell what fetching uv, uv and pip do."""
        calls, place = self.root / "calls", self.environment.venv / "bin/uv"
        self._monkeypatch.setenv("UV_SCRIPT", UV.format(calls=calls, uv=uv))
        python = Path(self.environment.python)
        python.write_text(
            PYTHON.format(
                calls=calls,
                lines=self.root / "fetched",
                fetch=fetch.format(uv=place),
                pip=pip or "true",
            )
        )
        python.chmod(0o755)

    def calls(self, program: str) -> list[str]:
        """What a program was asked to do."""
        lines = (self.root / "calls").read_text().splitlines()
        return [line.removeprefix(f"{program} ") for line in lines if line.startswith(program)]

    @property
    def real_calls(self) -> list[str]:
        """What a whole set-up asks of the program that does it."""
        return [call.format(lock=self.environment.lock) for call in REAL_CALLS]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_uv_installs_from_the_index_that_pip_is_set_up_for(machine: Machine) -> None:
    machine.prepare()
    setup(machine.environment)
    where = f" --python {machine.environment.python} from file:///one"
    assert machine.calls("uv") == [call + where for call in machine.real_calls]
    asked = [call for call in machine.calls("pip") if call != "config list"]
    [fetch] = asked
    assert fetch.startswith("install --no-deps --no-compile --require-hashes -r ")
    # uv itself is checked by its hashes, too.
    fetched = (machine.root / "fetched").read_text()
    assert fetched == "uv==1.0 \\\n    --hash=sha256:02 \\\n    --hash=sha256:03\n"


def test_of_two_packages_with_one_file_the_right_one_is_installed_last(machine: Machine) -> None:
    both = "chdb==4.0 \\\n    --hash=sha256:06\nchdb-core==26.0 \\\n    --hash=sha256:07\n"
    machine.environment.lock.write_text(WITH_UV + both)
    machine.prepare(uv='case "$*" in *chdb.lock*) cat "$6" >>"$0.again" ;; esac')
    setup(machine.environment)
    again = machine.calls("uv")[1]
    assert again.startswith("install --no-deps --force-reinstall --require-hashes -r ")
    fetched = (machine.environment.venv / "bin/uv.again").read_text()
    assert fetched == "chdb==4.0 \\\n    --hash=sha256:06\n"


def test_pip_installs_where_uv_cannot_be_fetched(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.prepare(fetch="exit 1")
    setup(machine.environment)
    assert machine.calls("uv") == []
    assert machine.calls("pip")[1:] == machine.real_calls
    assert "pip cannot fetch uv" in capsys.readouterr().out


def test_pip_installs_where_uv_fails(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.prepare(uv="echo no such index; exit 2")
    setup(machine.environment)
    assert len(machine.calls("uv")) == len(REAL_CALLS)
    asked = [call for call in machine.calls("pip") if call != "config list"]
    assert asked[1:] == machine.real_calls
    assert "no such index\nsetup: uv failed, so pip does it" in capsys.readouterr().out


def test_pip_alone_is_used_when_asked_for_or_when_the_lock_names_no_uv(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.prepare()
    with monkeypatch.context() as patch:
        patch.setenv("SETUP_INSTALLER", "pip")
        setup(machine.environment)
    machine.environment.lock.write_text("other==3.0 \\\n    --hash=sha256:05\n")
    setup(machine.environment)
    assert machine.calls("uv") == []
    assert machine.calls("pip")[:3] == machine.real_calls


def test_a_set_up_fails_when_both_fail(machine: Machine) -> None:
    machine.prepare(uv="exit 2", pip="echo no network; exit 1")
    with pytest.raises(SetupError, match="no network"):
        setup(machine.environment)
    assert setup_venv.read_stamp(machine.environment.venv) == {}


def test_uv_gets_pips_settings_unless_it_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS", "UV_INDEX_STRATEGY"):
        monkeypatch.delenv(name, raising=False)
    settings = """\
global.find-links='/wheels'
global.extra-index-url='file:///a file:///b'
global.timeout='60'
:env:.find-links='/other\\n/more'
"""
    expected = {
        "UV_FIND_LINKS": "/other,/more",
        "UV_INDEX": "file:///a file:///b",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert uv_variables(settings) == expected
    monkeypatch.setenv("UV_INDEX", "file:///mine")
    assert "UV_INDEX" not in uv_variables(settings)
