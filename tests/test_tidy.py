"""The style guide, executable: each rule stands here once, with its reason.

The rules read source text and syntax trees, never the imported code, so they hold for files that
never run. They apply to every file: a new one is covered on the day it is written.
"""

import ast
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from tests.tools import setup_venv

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("collector", "api", "alerts", "simulator", "dashboards")

# One screen and a half. Longer functions hide a second job (TigerBeetle's limit, our hard one).
FUNCTION_LINES_MAX = 70
# A newcomer reads a file from top to bottom, but not a longer one.
FILE_LINES_MAX = 700

# Files of collector/ that may touch the machine directly, each with its reason. All others ask
# `Host`, so that every source runs unchanged on a captured tree with a fixed clock.
DOORS = {
    "collector/doors/host.py": "it is the door",
    "collector/doors/commands.py": "behind the door: programs of this machine",
    "collector/doors/clocks.py": "behind the door: the kernel's clock and NICs' clocks",
    "collector/doors/probes.py": "behind the door: probes between agents, and their time stamps",
    "collector/doors/netlink.py": "behind the door: the kernel's news of its interfaces",
    "collector/doors/sockets.py": "behind the door: ethtool's ioctl and Unix datagrams",
    "collector/switches/snmp/client.py": "switches, whose answers a captured tree records",
    "collector/switches/snmp/wire.py": "the sockets of snmp/client.py",
    "collector/switches/gnmi/client.py": "switches' streams, which a captured tree records",
    "collector/bursts/process.py": "behind the door: it starts the sampler",
    "collector/bursts/sampler.py": "a process of its own, where there is no Host",
    "collector/doors/nvml.py": "NVIDIA's library, whose answers a captured tree holds as a file",
    "collector/agent/spool.py": "its queue is files on a disk, never on a captured tree",
    "collector/shims/fabricscope_steps.py": "it runs in training processes, where there is no Host",
    "collector/shims/fabricscope_client.py": "it runs in schedulers' plug-ins",
}

# The only places that may catch everything, and how often: elsewhere it hides mistakes.
BROAD_EXCEPTS = {
    "collector/agent/schedule.py": 1,  # one source: a bug in it must not stop the others
    "collector/switches/gnmi/stream.py": 1,  # one switch: a bug there must not end the agent
    "api/promql/parse.py": 1,  # a panic of the parser's Rust code, which has no class to name
    "api/http/boundary.py": 1,  # the request boundary: a bug becomes one answer, not a dead service
    "api/oncall/evaluate/detect.py": 1,  # one detector: a bug in it must not silence the others
    "dashboards/grafana/connection.py": 1,  # the SDK raises a bare Exception for an odd answer
    "api/oncall/rules/evaluate.py": 1,  # one rule: a bug that it meets must not silence the others
    "api/base/quarantine.py": 1,  # one row: whatever keeps it from being read hides no other
    "api/base/steady.py": 1,  # one round: the next one comes in time
    "api/data/ingest/commit.py": 1,  # one request: what cannot be written fails alone
    "api/data/inventory/feed.py": 1,  # one thing: what cannot be written holds up no other
    "api/http/processes/keeper.py": 1,  # one process: whatever breaks it, it ends with a status
    "api/http/works.py": 1,  # one work: it starts again, and the others go on
    "api/jobs/correlate/roll.py": 1,  # one stretch: it would break again for ever
    "api/jobs/correlate/windows.py": 1,  # one job: the others are judged
    "api/oncall/evaluate/task.py": 1,  # one evaluation: counted as broken, by its own outcome
    "api/oncall/notify/outbox.py": 1,  # one notice: it is tried again and holds up no other
    "api/oncall/rules/run.py": 1,  # explanations: an alert that cannot be explained still stands
    "api/oncall/rules/task.py": 1,  # one rule group: the others are evaluated
}

# Programs start here; what no entry point imports, directly or not, is dead.
ENTRY_POINTS = (
    "collector.cli",
    "collector.shims.fabricscope_steps",
    "collector.shims.fabricscope_client",
    *(
        verb["module"]
        for file in sorted(ROOT.glob("*/verbs.toml"))
        for verb in tomllib.loads(file.read_text("utf-8")).values()
    ),
)


def python_files(*folders: str) -> list[Path]:
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if not {"__pycache__", "node_modules"} & set(path.parts)
    )


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def repository_files() -> list[Path]:
    """What is, or is about to be, in version control; read from .gitignore, so it needs no git."""
    lines = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    patterns = ["/.git", *(line for line in lines if line and not line.startswith("#"))]

    def is_ours(path: Path) -> bool:
        return not any(
            fnmatch(name_of(path) if pattern.startswith("/") else path.name, pattern.strip("/"))
            for pattern in patterns
        )

    found: list[Path] = []
    folders = [ROOT]
    while folders:
        entries = [path for path in sorted(folders.pop().iterdir()) if is_ours(path)]
        folders.extend(path for path in entries if path.is_dir() and not path.is_symlink())
        found.extend(path for path in entries if path.is_file())
    return found


# --- size and shape ----------------------------------------------------------------------------


def test_functions_fit_on_a_screen() -> None:
    too_long = [
        f"{name_of(path)}:{node.lineno} {node.name}: {lines} lines"
        for path in python_files(*PACKAGES, "tests")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert not too_long


def test_files_can_be_read_in_one_sitting() -> None:
    too_long = [
        f"{name_of(path)}: {lines} lines"
        for path in python_files(*PACKAGES, "tests")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > FILE_LINES_MAX
    ]
    assert not too_long


def test_routes_do_not_import_routes() -> None:
    """What several routes share is in `api.http.routes.shared`; only the app knows the routers."""
    routers = {
        name_of(path).removesuffix(".py").replace("/", ".")
        for path in python_files("api")
        if re.search(r"^router = ", path.read_text("utf-8"), re.MULTILINE)
    }
    assert routers
    wrong = [
        f"{name_of(path)} imports {module}"
        for path in python_files("api")
        if name_of(path) != "api/http/app.py"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in imported_by(node) & routers
    ]
    assert not wrong


def imported_by(node: ast.Import | ast.ImportFrom) -> set[str]:
    """Every module that a statement may import: its own, and those that its names may be."""
    names = {alias.name for alias in node.names}
    if isinstance(node, ast.Import):
        return names
    return {node.module or "", *(f"{node.module}.{name}" for name in names)}


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        name_of(path)
        for path in python_files(*PACKAGES, "tests")
        if not ast.get_docstring(tree_of(path))
    ]
    assert not silent


def test_every_markdown_file_has_one_title() -> None:
    """A page with two titles is two pages; one without cannot be linked to."""
    wrong = {}
    for path in repository_files():
        if path.suffix == ".md":
            text = re.sub(
                r"^```.*?^```", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
            )
            titles = re.findall(r"^# .+", text, re.MULTILINE)
            if len(titles) != 1:
                wrong[name_of(path)] = titles
    assert not wrong


# --- what code may do --------------------------------------------------------------------------


def touches_the_machine(tree: ast.Module) -> Iterator[str]:
    """The uses of processes, wall clocks and files that belong behind `Host`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) if any(name.name == "subprocess" for name in names):
                yield f"{node.lineno}: import subprocess"
            case ast.ImportFrom(module="subprocess"):
                yield f"{node.lineno}: from subprocess import"
            case ast.ImportFrom(module="time", names=names) if any(
                name.name in {"time", "time_ns"} for name in names
            ):
                yield f"{node.lineno}: from time import time"
            case ast.Attribute(value=ast.Name(id="time"), attr="time" | "time_ns"):
                yield f"{node.lineno}: time.{node.attr}"
            case ast.Attribute(value=ast.Name(id="datetime"), attr="now" | "utcnow"):
                yield f"{node.lineno}: datetime.{node.attr}"
            case ast.Attribute(value=ast.Attribute(attr="datetime"), attr="now" | "utcnow"):
                yield f"{node.lineno}: datetime.datetime.{node.attr}"
            case ast.Call(func=ast.Name(id="open")):
                yield f"{node.lineno}: open()"
            case _:
                pass


def test_only_the_doors_of_collector_touch_the_machine() -> None:
    found = [
        f"{name_of(path)}:{use}"
        for path in python_files("collector")
        if name_of(path) not in DOORS
        for use in touches_the_machine(tree_of(path))
    ]
    assert not found, f"ask Host instead; the doors are {DOORS}"


def is_broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(
        isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"} for kind in kinds
    )


def test_exactly_these_places_catch_everything() -> None:
    found = Counter(
        name_of(path)
        for path in python_files("collector", "api", "alerts", "dashboards")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler) and is_broad(node)
    )
    expected = {name: count for name, count in BROAD_EXCEPTS.items() if (ROOT / name).exists()}
    assert dict(found) == expected


def test_only_command_lines_print() -> None:
    """Elsewhere a line on standard output is a log without level, or breaks a user's pipe."""
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files(*PACKAGES)
        if path.name != "cli.py" and module_of(path) not in ENTRY_POINTS
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert not found


# --- no dead files -----------------------------------------------------------------------------


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.Module) -> Iterator[str]:
    """Every name that may be a module of ours; also verbs named by a string."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{name.name}" for name in names)
            case ast.Constant(value=str(text)):
                yield text.partition(":")[0]
            case _:
                pass


def is_plug_in_folder(package: Path) -> bool:
    """Whether the package finds its modules itself, by a `discover` function."""
    return any(
        isinstance(node, ast.FunctionDef) and node.name == "discover"
        for node in tree_of(package).body
    )


def reached_without_import(path: Path) -> bool:
    """Plug-ins come by discover(), Alembic loads its files by path, roots hold a docstring."""
    init = path.parent / "__init__.py"
    return (
        module_of(path) in (*PACKAGES, *ENTRY_POINTS)
        or (init.exists() and path != init and is_plug_in_folder(init))
        or (path.parent.name == "versions" and (path.parent.parent / "env.py").exists())
        or (path.name == "env.py" and (path.parent / "versions").is_dir())
    )


def test_no_file_is_dead() -> None:
    modules = {module_of(path): path for path in python_files(*PACKAGES)}
    waiting = [name for name, path in modules.items() if reached_without_import(path)]
    alive: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in alive or name not in modules:
            continue
        alive.add(name)
        waiting.append(name.rpartition(".")[0])  # importing a.b runs a
        waiting.extend(imports_of(tree_of(modules[name])))
    assert sorted(modules.keys() - alive) == [], "no entry point reaches these files"


# --- packaging ---------------------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES)
def test_the_import_name_is_ours_alone(package: str) -> None:
    """Another distribution that ships `api` overwrites ours, and pip does not notice."""
    owners = importlib.metadata.packages_distributions().get(package, [])
    assert set(owners) == {"fabricscope"}


@pytest.mark.slow
def test_the_wheel_holds_the_packages_and_nothing_else(tmp_path: Path) -> None:
    """A flat layout hides packaging mistakes: in a checkout everything can be imported."""
    # A copy, because the build writes into its source folder and takes left-overs from there.
    source = tmp_path / "source"
    for path in repository_files():
        if path.is_relative_to(ROOT / "tests/fixtures"):
            continue
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    # As `make page` leaves it: the page itself ships, what it is built from and with does not.
    for name in ("page/index.html", "page/assets/index-x1.js", "page/assets/index-x1.js.gz"):
        put(source / "dashboards" / name)
    for name in ("web/src/page.toml", "web/node_modules/some/package.yaml"):
        put(source / "dashboards" / name)
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, str(source)], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        shipped = set(wheel.namelist())

    assert sorted(name for name in shipped if name.startswith("dashboards/web/")) == []
    shutil.rmtree(source / "dashboards/web")
    ours = [
        path.relative_to(source) for package in PACKAGES for path in (source / package).rglob("*")
    ]
    wanted = {
        path.as_posix()
        for path in ours
        # The build imports our modules to render rules and boards, and may compile them.
        if (source / path).is_file() and path.suffix not in {".md", ".pyc"}
    }
    assert sorted(wanted - shipped) == [], "not in the wheel: see package-data and __init__.py"
    boards = {path.stem for path in (source / "dashboards/grafana/boards").glob("[!_]*.py")}
    rules = {path.name for path in (source / "alerts/rules/templates").glob("*.yaml")}
    rendered = {f"dashboards/grafana/json/{name}.json" for name in boards}
    rendered |= {f"alerts/rules/{name}" for name in rules}
    assert sorted(rendered - shipped) == [], "setup.py renders them"
    tops = {name.partition("/")[0] for name in shipped if ".dist-info/" not in name}
    assert sorted(tops - set(PACKAGES)) == [], "these must not ship"


def put(path: Path) -> None:
    """A built file; its content does not matter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name)


PYTHON_LOCKS = sorted([*ROOT.glob("*.lock"), *ROOT.glob("deploy/*/*.lock")])
PIN = re.compile(r"([a-z0-9-]+)==([A-Za-z0-9.!+]+)( ; [a-z0-9_ .<>=!'A-Z]+)?")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}")


def entries(lock: Path) -> list[tuple[str, list[str]]]:
    """The entries of a lock: the line that names a version, and the lines of its hashes."""
    text = re.sub(r"^#.*\n", "", lock.read_text("utf-8"), flags=re.MULTILINE)
    found = [
        (head, hashes)
        for head, *hashes in (
            entry.replace(" \\\n", "\n").splitlines() for entry in re.split(r"\n(?=\S)", text)
        )
    ]
    assert found
    return found


def test_every_lock_of_pip_is_known() -> None:
    """A lock that `make lock` does not write goes stale."""
    assert sorted(wanted.file for wanted in setup_venv.LOCKS) == PYTHON_LOCKS


@pytest.mark.parametrize("lock", PYTHON_LOCKS, ids=name_of)
def test_a_lock_names_versions_with_hashes_and_no_addresses(lock: Path) -> None:
    """The lock must work with whatever index a user has, on every processor."""
    found = entries(lock)
    assert [head for head, _ in found if not PIN.fullmatch(head)] == []
    assert [head for head, hashes in found if not hashes] == [], "pip would take any file"
    assert [line for _, hashes in found for line in hashes if not HASH.fullmatch(line)] == []
    names = [head.partition("==")[0] for head, _ in found]
    assert names == sorted(names)
    assert "://" not in lock.read_text("utf-8")


@pytest.mark.parametrize(
    "lock", [path for path in PYTHON_LOCKS if path.parent.name == "docker"], ids=name_of
)
def test_an_image_installs_the_files_that_were_tested(lock: Path) -> None:
    tested = dict(entries(ROOT / "requirements-dev.lock"))
    # A marker may differ: another package may ask for the same one.
    by_version = {head.partition(" ;")[0]: hashes for head, hashes in tested.items()}
    for head, hashes in entries(lock):
        assert by_version.get(head.partition(" ;")[0]) == hashes, head


@pytest.mark.parametrize(
    "image",
    [ROOT / f"deploy/docker/Dockerfile.{name}" for name in ("agent", "service")],
    ids=name_of,
)
def test_an_image_installs_nothing_but_its_lock(image: Path) -> None:
    installs = [line for line in image.read_text("utf-8").splitlines() if "pip install" in line]
    assert installs
    for line in installs:
        assert "--require-hashes" in line or ("--no-deps" in line and "${wheel}" in line), line


LOCKED = ("dashboards/web", "tests/tools/grafana")
"""Folders with packages of npm's."""


@pytest.mark.parametrize("folder", LOCKED)
def test_npm_s_lock_names_versions_and_no_addresses(folder: str) -> None:
    """The same of the page's packages: `.npmrc` there keeps npm from writing addresses."""
    packages = json.loads((ROOT / folder / "package-lock.json").read_text("utf-8"))["packages"]
    addresses = {
        name: package["resolved"] for name, package in packages.items() if "resolved" in package
    }
    assert addresses == {}
    without_hash = [
        name for name, package in packages.items() if name and "integrity" not in package
    ]
    assert without_hash == [], "npm ci would take whatever it is given"
    # Addresses that are left say where to give money (`funding`); a version that is one is fetched.
    assert [name for name, package in packages.items() if "://" in package.get("version", "")] == []


# --- words that do not belong here -------------------------------------------------------------

# Put together from parts, so that this file does not contain what it forbids.
REGISTRIES = [
    "".join(parts)
    for parts in (
        ("pypi", ".org"),
        ("python", "hosted"),
        ("npm", "js.org"),
        ("npm", "js.com"),
        ("crates", ".io"),
        ("rubygems", ".org"),
        ("deb", ".debian"),
        ("archive", ".ubuntu"),
    )
]
HOMES = [f"/{name}/" for name in ("root", "home", "Users")]
FORBIDDEN = re.compile(
    "|".join(rf"\b{re.escape(host)}\b" for host in REGISTRIES)
    + "|"
    + "|".join(rf"(?<![\w.*~-]){home}" for home in HOMES)
)


def texts() -> Iterator[tuple[str, str]]:
    """Every text file of the repository: its name and what is in it."""
    for path in repository_files():
        content = path.read_bytes()
        if b"\0" not in content:  # else captured bytes, not text
            yield name_of(path), content.decode("utf-8", "replace")


def places(pattern: re.Pattern[str], words: Sequence[str]) -> list[str]:
    """Where a pattern stands in any text: file, line, and what was found.

    One of ``words`` is in whatever it matches: a search for plain words takes a tenth of the time.
    """
    return [
        f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {found[0]}"
        for name, text in texts()
        if any(word in text for word in words)
        for found in pattern.finditer(text)
    ]


def test_no_file_names_a_registry_or_somebody_s_machine() -> None:
    """The first breaks behind a mirror, the second works on one machine only."""
    assert not places(FORBIDDEN, [*REGISTRIES, *HOMES])


def selectors_of(sheet: str) -> set[str]:
    bare = re.sub(r"@[^{;]*\{", "", re.sub(r"/\*.*?\*/", "", sheet, flags=re.DOTALL))
    rules = re.findall(r"([^{}]+)\{[^{}]*\}", bare)
    return {one.strip() for names in rules for one in re.split(r",(?![^(]*\))", names)}


def test_one_sheet_says_how_a_thing_of_the_page_looks() -> None:
    """All sheets are one file of the page: of two that say it, the one that stands last decides."""
    sheets = {
        path.name: selectors_of(path.read_text())
        for path in (ROOT / "dashboards/web/src/style").glob("*.css")
        if path.name != "report.css"  # of the report alone
    }
    said = Counter(one for selectors in sheets.values() for one in selectors)
    assert len(said) > 500
    colours = {":root", ':root[data-theme="dark"]'}
    assert {one for one, times in said.items() if times > 1} - colours == set()


def test_no_merge_was_left_half_done() -> None:
    """Git writes such lines into a file that two branches changed; no tool complains of them."""
    marks = ["<" * 7 + " ", ">" * 7 + " "]
    assert not places(re.compile(f"^(?:{'|'.join(marks)})", re.MULTILINE), marks)
