"""HTTP client of one Kubernetes API server: the few calls that we need, bounded.

Nodes are listed in pages, watched, read and patched; a lease is read, made and replaced. Why by
hand: docs/decisions/0038-kubernetes-by-hand.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, TypeVar

import httpx
import msgspec

from api.remote.client import UNREACHED, explain, quoted, shorten
from api.remote.kubernetes.access import Access
from api.remote.kubernetes.errors import (
    ClusterAway,
    ClusterError,
    ClusterOdd,
    ClusterRefused,
    ObjectChanged,
    ObjectMissing,
    WatchGone,
)
from api.remote.kubernetes.objects import Lease, LeaseSpec, Node, NodeList, Status, WatchEvent
from collector.contract.errors import SettingsError

CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 30.0
"""For one whole answer; the API server itself gives up after 60."""
ANSWER_BYTES_MAX = 64 << 20
"""Of one answer: a page of 500 nodes with all their images has about 10 MB."""
LINE_BYTES_MAX = 4 << 20
"""Of one event of a watch: etcd takes no object over 1.5 MiB."""
PAGE_NODES = 500
"""As kubectl asks for them."""
NODES_MAX = 100_000
"""Nodes that are followed: twenty times the largest clusters that Kubernetes promises."""
WATCH_SECONDS = 240
"""After which the server ends a watch and we begin the next: load balancers forget us at 350."""
WATCH_SILENCE_SECONDS = WATCH_SECONDS + 30
"""Without even its end: the connection is dead."""
LIST_TRIES = 3
"""Restarts of a list because a page was too old."""

STRATEGIC = "application/strategic-merge-patch+json"
"""Conditions are merged by type: ours is set, the kubelet's stay."""
MERGE = "application/merge-patch+json"
"""Labels are merged by key, lists are replaced whole: therefore with the resource version."""

AWAY = frozenset({429, 500, 502, 503, 504})
"""Codes of a server that may be well again soon."""
MEANINGS: dict[int, tuple[type[ClusterError], str]] = {
    401: (ClusterRefused, "; the token or certificate is not accepted"),
    403: (ClusterRefused, "; see the ClusterRole in deploy/kubernetes"),
    404: (ObjectMissing, ""),
    409: (ObjectChanged, ""),
    410: (WatchGone, ""),
}

Answer = TypeVar("Answer")


class Cluster:
    """A client of one API server. For one event loop."""

    def __init__(self, access: Access, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._access = access
        self.server = access.server
        self.namespace = access.namespace
        self._http = httpx.AsyncClient(
            base_url=access.server,
            verify=access.make_ssl(),
            trust_env=False,
            follow_redirects=False,
            transport=transport,
            timeout=httpx.Timeout(ANSWER_SECONDS_MAX, connect=CONNECT_SECONDS_MAX),
            # A compressed answer could unpack to any size.
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": "fabricscope-kubernetes",
            },
        )

    async def close(self) -> None:
        await self._http.aclose()

    # --- nodes ---------------------------------------------------------------------------------

    async def list_nodes(self) -> tuple[dict[str, Node], str]:
        """All nodes by name, and the version from which a watch goes on."""
        for _ in range(LIST_TRIES):
            with contextlib.suppress(WatchGone):
                return await self._list_pages()
        raise ClusterAway(f"{self.server}: nodes change faster than they can be listed")

    async def _list_pages(self) -> tuple[dict[str, Node], str]:
        found: dict[str, Node] = {}
        after = ""
        while True:
            asked: dict[str, str | int] = {"limit": PAGE_NODES}
            if after:
                asked["continue"] = after
            page = await self._ask("GET", "/api/v1/nodes", NodeList, params=asked)
            found |= {node.name: node for node in page.items}
            if len(found) > NODES_MAX:
                raise ClusterOdd(f"{self.server}: over {NODES_MAX} nodes (NODES_MAX)")
            after = page.metadata.continue_
            if not after:
                return found, page.metadata.resource_version

    async def watch_nodes(self, version: str) -> AsyncGenerator[tuple[str, Node]]:
        """Events of nodes after a version, until the server ends it; WatchGone if too old.

        Yields ADDED, MODIFIED, DELETED and BOOKMARK: of the last only the version has a meaning.
        """
        asked: dict[str, str | int] = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": WATCH_SECONDS,
        }
        patience = httpx.Timeout(CONNECT_SECONDS_MAX, read=WATCH_SILENCE_SECONDS)
        async with self._open("GET", "/api/v1/nodes", params=asked, timeout=patience) as answer:
            async for line in lines_of(answer):
                event = decode(line, WatchEvent, "a watch of nodes")
                if event.type == "ERROR":
                    status = decode(event.object, Status, "the end of a watch")
                    raise self._meaning(status.code, status, "a watch of nodes")
                yield event.type, decode(event.object, Node, "a watch of nodes")

    async def get_node(self, name: str) -> Node:
        return await self._ask("GET", node_path(name), Node)

    async def patch_node(self, name: str, patch: Mapping[str, Any]) -> Node:
        """Change labels, annotations or taints. ObjectChanged if the version is not the patch's."""
        return await self._ask("PATCH", node_path(name), Node, body=patch, kind=MERGE)

    async def patch_status(self, name: str, patch: Mapping[str, Any]) -> Node:
        path = f"{node_path(name)}/status"
        return await self._ask("PATCH", path, Node, body=patch, kind=STRATEGIC)

    # --- the lease -----------------------------------------------------------------------------

    async def get_lease(self, name: str) -> Lease:
        """A lease of our namespace; ObjectMissing if there is none."""
        return await self._ask("GET", f"{self._leases}/{quoted(name)}", Lease)

    async def create_lease(self, name: str, spec: LeaseSpec) -> Lease:
        """ObjectChanged if another process was faster."""
        return await self._ask("POST", self._leases, Lease, body=lease_body(name, "", spec))

    async def replace_lease(self, lease: Lease, spec: LeaseSpec) -> Lease:
        """Change a lease that is still as it was read; ObjectChanged if it is not."""
        name = lease.metadata.name
        body = lease_body(name, lease.metadata.resource_version, spec)
        return await self._ask("PUT", f"{self._leases}/{quoted(name)}", Lease, body=body)

    @property
    def _leases(self) -> str:
        namespace = quoted(self.namespace)
        return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    # --- one call ------------------------------------------------------------------------------

    async def _ask(
        self,
        method: str,
        path: str,
        wanted: type[Answer],
        *,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        kind: str = "application/json",
    ) -> Answer:
        """Raises a ClusterError by name."""
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": kind}
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS_MAX),
                self._open(method, path, params=params, content=content, headers=headers) as answer,
            ):
                text = await read_all(answer)
        except TimeoutError as error:
            words = f"{method} {path}: no answer within {ANSWER_SECONDS_MAX:.0f} s"
            raise ClusterAway(f"{self.server}: {words}") from error
        return decode(text, wanted, f"{method} {path}")

    @contextlib.asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        **asked: Any,  # noqa: ANN401 - whatever httpx takes
    ) -> AsyncIterator[httpx.Response]:
        """A streamed answer; raises a ClusterError by name."""
        try:
            token = self._access.read_token()
        except SettingsError as error:
            raise ClusterRefused(str(error)) from error
        sent = {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        try:
            async with self._http.stream(method, path, headers=sent, **asked) as answer:
                if not answer.is_success:
                    raise await self._refusal(answer, f"{method} {path}")
                yield answer
        except UNREACHED as error:
            raise ClusterAway(f"cannot reach {self.server}: {explain(error)}") from error

    async def _refusal(self, answer: httpx.Response, what: str) -> ClusterError:
        text = await read_all(answer)
        try:
            status = msgspec.json.decode(text, type=Status)
        except (msgspec.DecodeError, RecursionError):
            status = Status()
        retry = answer.headers.get("retry-after", "")
        retry_s = float(retry) if retry.isdecimal() else 0.0
        return self._meaning(answer.status_code, status, what, retry_s)

    def _meaning(self, code: int, status: Status, what: str, retry_s: float = 0.0) -> ClusterError:
        words = f"{self.server}: {what}: HTTP {code} {shorten(status.message)}".rstrip()
        if code in AWAY:
            return ClusterAway(words, retry_s)
        kind, advice = MEANINGS.get(code, (ClusterOdd, ""))
        return kind(f"{words}{advice}")


def node_path(name: str) -> str:
    return f"/api/v1/nodes/{quoted(name)}"


def lease_body(name: str, version: str, spec: LeaseSpec) -> dict[str, Any]:
    metadata = {"name": name, **({"resourceVersion": version} if version else {})}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": msgspec.to_builtins(spec),
    }


def decode(text: bytes | msgspec.Raw, wanted: type[Answer], what: str) -> Answer:
    """An answer as the given type; ClusterOdd if it does not match."""
    try:
        return msgspec.json.decode(text, type=wanted)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ClusterOdd(f"{what}: no answer of Kubernetes ({shorten(str(error))})") from error


async def read_all(answer: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > ANSWER_BYTES_MAX:
            raise ClusterOdd(f"{answer.url.path}: more than {ANSWER_BYTES_MAX >> 20} MiB")
    return bytes(body)


async def lines_of(answer: httpx.Response) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for piece in answer.aiter_bytes():
        rest += piece
        if b"\n" in piece:
            *lines, last = bytes(rest).split(b"\n")
            for line in lines:
                if line.strip():
                    yield line
            rest = bytearray(last)
        if len(rest) > LINE_BYTES_MAX:
            raise ClusterOdd(f"{answer.url.path}: an event over {LINE_BYTES_MAX >> 20} MiB")
