"""`make page`: which Node is new enough, when it builds again, and its error when it fails.

A shell script replaces Node and npm. `make test` begins with `make page`, which builds the real
page.
"""

import gzip
import json
import shutil
import time
from pathlib import Path

import pytest

from tests.tools import setup_page
from tests.tools.setup_page import Tools, is_new_enough, pack, parse_version
from tests.tools.setup_venv import SetupError

LOCK = {
    "": {"name": "page"},
    "node_modules/vite": {"version": "8.0.0", "integrity": "sha512-v"},
    "node_modules/other-processor": {"version": "1.0.0", "integrity": "sha512-o", "optional": True},
}
INSTALLED = {"node_modules/vite": LOCK["node_modules/vite"]}
NODE = """#!/bin/sh
# $1 is npm's script; what comes after is what npm was asked to do.
shift
echo "npm $*" >>"{calls}"
case "$*" in
  --version) echo v24.0.0 ;;
  ping*) {ping} ;;
  *--offline) {offline} ;;
  install*) {install} ;;
  "run build") {build} ;;
esac
"""
BUILD = """mkdir -p "{page}/assets" && echo "<html>" >"{page}/index.html" &&
    yes fabricscope | head -500 >"{page}/assets/x-1.js" && echo built"""


class Checkout:
    """A checkout with a page to build, and a fake Node that builds it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.web, self.page = root, root / "dashboards/web", root / "dashboards/page"
        self.calls_file = root / "calls"
        for name, path in {
            "ROOT": root,
            "WEB": self.web,
            "PAGE": self.page,
            "MODULES": self.web / "node_modules",
            "LOG": root / "build/page.log",
            "STAMP": root / "build/page.json",
        }.items():
            monkeypatch.setattr(setup_page, name, path)
        monkeypatch.setattr(setup_page, "tools_of_machine", lambda _: self.tools())
        monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        (self.web / "node_modules").mkdir(parents=True)
        (self.web / "package.json").write_text(json.dumps({"engines": {"node": ">=20.19"}}))
        (self.web / "package-lock.json").write_text(json.dumps({"packages": LOCK}))
        (self.web / "main.ts").write_text("1")
        self.write_node()

    def tools(self) -> Tools:
        return Tools(self.root / "node", Path("npm-cli.js"), (24, 0, 0))

    def write_node(self, build: str = BUILD, ping: str = "exit 0", offline: str = "exit 1") -> None:
        note = json.dumps({"packages": INSTALLED})
        text = NODE.format(
            calls=self.calls_file,
            install=f"echo '{note}' >node_modules/.package-lock.json",
            build=build.format(page=self.page),
            ping=ping,
            offline=offline.format(note=note),
        )
        (self.root / "node").write_text(text)
        (self.root / "node").chmod(0o755)

    def forget(self) -> None:
        """Empty the cache of pages that were built."""
        shutil.rmtree(self.root / "cache")

    @property
    def calls(self) -> list[str]:
        """What npm was made to do since the last read of this property."""
        found = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        self.calls_file.unlink(missing_ok=True)
        return [call for call in found if not call.startswith("npm ping")]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    return Checkout(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("version", "engines", "expected"),
    [
        ("v20.20.2", ">=20.19", True),
        ("v20.18.9", ">=20.19", False),
        ("v24.0.0", ">=20.19", True),
        ("v21.7.0", "^20.19.0 || >=22.12.0", False),
        ("v22.12.0", "^20.19.0 || >=22.12.0", True),
        ("18", "^20.19.0||>=22.12.0", False),
    ],
)
def test_a_node_is_new_enough_or_not(version: str, engines: str, *, expected: bool) -> None:
    assert is_new_enough(parse_version(version), engines) is expected


def test_what_cannot_be_understood_is_said() -> None:
    with pytest.raises(SetupError, match=r"'20\.x'; write it with"):
        is_new_enough((20, 0, 0), "20.x")
    with pytest.raises(SetupError, match="'abc' is no version"):
        parse_version("abc")


def test_the_page_is_built_once_and_again_when_a_source_changes(
    checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert setup_page.main() == 0
    install, build = checkout.calls
    assert (install.split()[:3], build) == (["npm", "install", "--no-save"], "npm run build")
    packed = checkout.page / "assets/x-1.js.gz"
    assert gzip.decompress(packed.read_bytes()) == (checkout.page / "assets/x-1.js").read_bytes()
    assert not (checkout.page / "index.html.gz").exists(), "gzip does not make this file smaller"
    assert setup_page.main() == 0
    assert checkout.calls == []
    assert "up to date" in capsys.readouterr().out
    (checkout.web / "main.ts").rename(checkout.web / "other.ts")
    assert setup_page.main() == 0
    assert checkout.calls == ["npm run build"]
    (checkout.page / "index.html").unlink()
    checkout.forget()
    assert setup_page.main() == 0
    assert checkout.calls == ["npm run build"]


def test_another_clone_finds_the_page_that_was_built(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert setup_page.main() == 0
    built = {path.name for path in checkout.page.rglob("*")}
    assert checkout.calls
    shutil.rmtree(checkout.page)
    (checkout.root / "build/page.json").unlink()
    assert setup_page.main() == 0
    assert {path.name for path in checkout.page.rglob("*")} == built
    assert checkout.calls == []
    # The checks need npm's packages, also when another clone built the page.
    shutil.rmtree(checkout.web / "node_modules")
    (checkout.web / "node_modules").mkdir()
    monkeypatch.setattr("sys.argv", ["setup_page", "check"])
    assert setup_page.main() == 0
    assert [call.partition(" --")[0] for call in checkout.calls] == [
        "npm install",
        "npm run check",
        "npm test",
    ]


def test_packages_are_installed_again_when_the_lock_changes(checkout: Checkout) -> None:
    assert setup_page.main() == 0
    assert checkout.calls[0].startswith("npm install")
    newer = LOCK | {"node_modules/vite": {"version": "8.0.1", "integrity": "sha512-w"}}
    (checkout.web / "package-lock.json").write_text(json.dumps({"packages": newer}))
    setup_page.main()
    assert checkout.calls[0].startswith("npm install")
    (checkout.web / "node_modules/.package-lock.json").write_text("{")
    (checkout.web / "package-lock.json").write_text(json.dumps({"packages": LOCK}))
    checkout.forget()
    setup_page.main()
    assert checkout.calls[0].startswith("npm install")


UNREACHABLE = """printf 'npm error code ECONNREFUSED\\nnpm error request to x failed\\n' >&2
    exit 1"""


@pytest.mark.parametrize(
    ("ping", "why"),
    [(UNREACHABLE, "ECONNREFUSED: request to x failed"), ("exec sleep 60", "within 0.5 s")],
)
def test_without_a_registry_it_is_said_at_once(
    ping: str,
    why: str,
    checkout: Checkout,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It asked for minutes, in which `make demo` seemed to stand still."""
    monkeypatch.setattr(setup_page, "ASK_SECONDS", 0.5)
    checkout.write_node(ping=ping)
    started = time.monotonic()
    assert setup_page.main() == 1
    assert time.monotonic() - started < 10
    assert all("--offline" in call for call in checkout.calls)
    said = capsys.readouterr().err
    assert "npm's registry does not answer" in said
    assert why in said
    assert "npm config set registry" in said


def test_without_a_registry_what_npm_has_kept_does(checkout: Checkout) -> None:
    kept = "echo '{note}' >node_modules/.package-lock.json"
    checkout.write_node(ping=UNREACHABLE, offline=kept)
    assert setup_page.main() == 0
    install, build = checkout.calls
    assert install.endswith("--offline")
    assert build == "npm run build"


def test_a_registry_without_a_page_for_ping_answers(checkout: Checkout) -> None:
    checkout.write_node(ping="echo 'npm error code E404' >&2; exit 1")
    assert setup_page.main() == 0
    assert "--offline" not in checkout.calls[0]


def test_a_build_that_fails_says_what_and_where_the_log_is(
    checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout.write_node("echo 'main.ts(1): error TS2304' && exit 2")
    assert setup_page.main() == 1
    said = capsys.readouterr().err
    assert "failed: " in said
    assert "run build" in said
    assert "main.ts(1): error TS2304" in said
    assert "build/page.log" in said
    assert "error TS2304" in (checkout.root / "build/page.log").read_text()
    # The next run builds again and succeeds.
    checkout.write_node()
    assert setup_page.main() == 0
    checkout.write_node("echo nothing")
    (checkout.page / "index.html").unlink()
    checkout.forget()
    assert setup_page.main() == 1
    assert "wrote no dashboards/page/index.html" in capsys.readouterr().err


def test_the_same_page_is_packed_into_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.css").write_text("body { color: red }\n" * 100)
        (tmp_path / name / "picture.png").write_bytes(bytes(10_000))
        assert pack(tmp_path / name) == 1
    packed = [(tmp_path / name / "x.css.gz").read_bytes() for name in ("a", "b")]
    assert packed[0] == packed[1]
