"""Address and credentials of the API server: from inside a pod, or from a kubeconfig.

What is not supported is refused by name, never ignored: a program that changes nodes must not talk
to the wrong server, or as another user. Programs that make tokens (`exec`) are not supported: this
one starts no others. `kubectl proxy` helps there: its address is on loopback and needs no
credentials.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from collector.contract.errors import SettingsError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where every pod finds its service account."""
NAMESPACE_DEFAULT = "default"
CONFIG_BYTES_MAX = 4 << 20
"""Of a kubeconfig: those with hundreds of clusters have less."""
TOKEN_BYTES_MAX = 64 << 10
"""Of a token file: bound service account tokens have about one KiB."""

CLUSTER_FIELDS = frozenset(
    {"server", "certificate-authority", "certificate-authority-data", "extensions"}
)
USER_FIELDS = frozenset(
    {
        "token",
        "tokenFile",
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
        "extensions",
    }
)
ADVICE = {
    "exec": "it starts a program; use a service account's token, or `kubectl proxy`",
    "auth-provider": "Kubernetes has dropped it; use a service account's token, or `kubectl proxy`",
    "username": "Kubernetes has dropped passwords; use a service account's token",
    "password": "Kubernetes has dropped passwords; use a service account's token",
    "insecure-skip-tls-verify": "a program that changes nodes must know its server;"
    " set certificate-authority",
}
"""What to do instead of some of what is refused."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """One API server, and our credentials."""

    server: str
    namespace: str = NAMESPACE_DEFAULT
    token: str = ""
    token_file: Path | None = None
    """Read for every request: Kubernetes exchanges it while we run."""
    ca: str = ""
    """Certificates to trust (PEM); empty: the system's."""
    certificate: str = ""
    """Our own chain (PEM), and its key."""
    key: str = ""

    def __repr__(self) -> str:
        """Without secrets: it must not get into a log by accident."""
        return f"Access({self.server!r})"

    def read_token(self) -> str:
        """The bearer token as it is now; empty if there is none. SettingsError if unreadable."""
        token = self.token
        if self.token_file is not None:
            token = read_text(self.token_file, TOKEN_BYTES_MAX).strip()
            if not token:
                raise SettingsError(f"{self.token_file} is empty; it should hold a token")
        if not (token.isascii() and token.isprintable()):
            # It becomes a header: a line break in it would become another one.
            raise SettingsError(f"the token for {self.server} has signs that no token has")
        return token

    def make_ssl(self) -> ssl.SSLContext | bool:
        """How to verify the server, and our certificate; False where it uses plain HTTP."""
        if not self.server.startswith("https:"):
            return False
        try:
            context = ssl.create_default_context(cadata=self.ca or None)
            if self.certificate:
                # OpenSSL reads chains from files only.
                with written(self.certificate) as chain, written(self.key) as key:
                    context.load_cert_chain(chain, key)
        except (ssl.SSLError, ValueError) as error:
            raise SettingsError(f"certificates for {self.server}: {error}") from error
        return context


@contextlib.contextmanager
def written(text: str) -> Iterator[str]:
    """A temporary file with this text that only we can read."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name


def read_text(path: Path, bytes_max: int) -> str:
    """A file's text; SettingsError names what is wrong with it."""
    try:
        with path.open("rb") as opened:
            content = opened.read(bytes_max + 1)
        if len(content) > bytes_max:
            raise SettingsError(f"{path} has more than {bytes_max} bytes")
        return content.decode("utf-8")
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not text: {error}") from error


def check_server(server: str, place: str) -> str:
    """An API server's address; SettingsError if invalid, or if it would reveal our token."""
    try:
        parts = urlsplit(server)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or parts.query or parts.fragment or parts.username or not server.isprintable():
        raise SettingsError(f"{place}: server {server!r}; it must be https://HOST:PORT")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise SettingsError(
            f"{place}: server {server!r}: without TLS only loopback (`kubectl proxy`) is asked"
        )
    return server.rstrip("/")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# --- inside a pod -------------------------------------------------------------------------------


def in_cluster(environment: Mapping[str, str], account: Path = ACCOUNT) -> Access:
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise SettingsError(
            "no Kubernetes here: neither KUBECONFIG nor --kubeconfig names a file, and"
            " KUBERNETES_SERVICE_HOST is not set, as it is in a pod"
        )
    shown = f"[{host}]" if ":" in host else host
    namespace = account / "namespace"
    return Access(
        server=check_server(f"https://{shown}:{port}", "KUBERNETES_SERVICE_HOST"),
        namespace=read_text(namespace, TOKEN_BYTES_MAX).strip() or NAMESPACE_DEFAULT,
        token_file=account / "token",
        ca=read_text(account / "ca.crt", CONFIG_BYTES_MAX),
    )


# --- kubeconfig ---------------------------------------------------------------------------------


def find_access(
    kubeconfig: str, context: str, environment: Mapping[str, str], account: Path = ACCOUNT
) -> Access:
    """By --kubeconfig, else KUBECONFIG, else as a pod."""
    files = kubeconfig or environment.get("KUBECONFIG", "")
    if not files:
        return in_cluster(environment, account)
    return read_kubeconfig([Path(name) for name in files.split(os.pathsep) if name], context)


def read_kubeconfig(files: list[Path], context: str = "") -> Access:
    """The context's cluster and user; of several files the first with a value wins."""
    named: dict[str, dict[str, tuple[Path, dict[str, Any]]]] = {
        "clusters": {},
        "users": {},
        "contexts": {},
    }
    for file in files:
        content = read_config(file)
        context = context or text_of(content, "current-context", str(file))
        for kind, found in named.items():
            for entry in content.get(kind) or []:
                name, value = named_entry(entry, kind, file)
                found.setdefault(name, (file, value))
    where = ", ".join(map(str, files))
    if not context:
        raise SettingsError(f"{where}: no current-context; name one with --context")
    _, chosen = find_named(named["contexts"], "context", context, where)
    cluster = text_of(chosen, "cluster", f"{where}: context {context!r}")
    user = text_of(chosen, "user", f"{where}: context {context!r}")
    known = read_cluster(*find_named(named["clusters"], "cluster", cluster, where), cluster)
    if user:
        known |= read_user(*find_named(named["users"], "user", user, where), user)
    namespace = text_of(chosen, "namespace", f"{where}: context {context!r}")
    return Access(**known, namespace=namespace or NAMESPACE_DEFAULT)


def read_config(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(read_text(file, CONFIG_BYTES_MAX))
    except (yaml.YAMLError, RecursionError) as error:
        raise SettingsError(f"{file} is no kubeconfig: {error}") from error
    if not isinstance(content, dict) or content.get("kind", "Config") != "Config":
        raise SettingsError(f"{file} is no kubeconfig: it should be a map with kind: Config")
    for kind in ("clusters", "users", "contexts"):
        if not isinstance(content.get(kind) or [], list):
            raise SettingsError(f"{file}: {kind} is no list")
    return content


def named_entry(entry: object, kind: str, file: Path) -> tuple[str, dict[str, Any]]:
    content = entry.get(kind[:-1]) if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(content or {}, dict):
        raise SettingsError(f"{file}: an entry of {kind} is not {{name: …, {kind[:-1]}: {{…}}}}")
    return text_of(entry, "name", f"{file}: {kind}"), content or {}


def find_named(
    found: Mapping[str, tuple[Path, dict[str, Any]]], kind: str, name: str, where: str
) -> tuple[Path, dict[str, Any]]:
    """The entry of this name; SettingsError lists those that exist."""
    if name not in found:
        there = ", ".join(sorted(found)) or "none"
        raise SettingsError(f"{where}: there is no {kind} {name!r}; there are: {there}")
    return found[name]


def text_of(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise SettingsError(f"{where}: {key} is {type(value).__name__}; it should be text")
    return value or ""


def check_fields(table: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for key, value in table.items():
        if key not in known and value not in (None, "", False, [], {}):
            advice = ADVICE.get(key, "fabricscope does not do this; use another user or cluster")
            raise SettingsError(f"{where}: {key}: {advice}")


def read_cluster(file: Path, table: dict[str, Any], name: str) -> dict[str, Any]:
    where = f"{file}: cluster {name!r}"
    check_fields(table, CLUSTER_FIELDS, where)
    return {
        "server": check_server(text_of(table, "server", where), where),
        "ca": read_data(file, table, "certificate-authority", where),
    }


def read_user(file: Path, table: dict[str, Any], name: str) -> dict[str, Any]:
    where = f"{file}: user {name!r}"
    check_fields(table, USER_FIELDS, where)
    known: dict[str, Any] = {
        "token": text_of(table, "token", where),
        "certificate": read_data(file, table, "client-certificate", where),
        "key": read_data(file, table, "client-key", where),
    }
    token_file = text_of(table, "tokenFile", where)
    if token_file and not known["token"]:
        known["token_file"] = file.parent / token_file
    if bool(known["certificate"]) != bool(known["key"]):
        raise SettingsError(f"{where}: client-certificate and client-key go together")
    return known


def read_data(file: Path, table: dict[str, Any], key: str, where: str) -> str:
    """PEM from ``key``-data (base64), or from the file that ``key`` names, as kubectl reads it."""
    data = text_of(table, f"{key}-data", where)
    if data:
        try:
            return base64.b64decode(data, validate=True).decode("ascii")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise SettingsError(f"{where}: {key}-data is no PEM in base64: {error}") from error
    named = text_of(table, key, where)
    return read_text(file.parent / named, CONFIG_BYTES_MAX) if named else ""
