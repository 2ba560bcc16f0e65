"""A Kubernetes API server double: it answers the calls that we make, as Kubernetes does.

Nodes (list in pages, watch, read, create, delete, patch, patch of the status) and leases, with
resource versions, patches by content type, refusals as `Status`, and what is refused in
admission: taints that are there twice, labels that are none, an update of a lease without a
version. It keeps what it is given in memory, writes down every call, and fails on demand. Sources:
https://kubernetes.io/docs/reference/using-api/api-concepts/ and the types' patch strategies. What
it does not do: other resources, field managers, server-side apply.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
import ssl
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

Json = dict[str, Any]

WRITER, READER, STRANGER = "token-of-the-controller", "token-of-a-reader", "token-of-nobody"
"""Service accounts: one with our ClusterRole, one that may only look, and none."""
READS = {("get", "nodes"), ("list", "nodes"), ("watch", "nodes")}
LEASES = {(verb, "leases") for verb in ("get", "create", "update")}
RIGHTS = {
    WRITER: READS | LEASES | {("patch", "nodes"), ("patch", "nodes/status")},
    READER: READS,
}
ADMIN = "token-of-an-admin"
"""For tests, which add and remove nodes."""

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
MERGED_BY = {"conditions": "type", "addresses": "type"}
"""Lists that a strategic patch merges, and by which field. Taints are replaced whole."""
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
SHUTDOWN_SECONDS = 0.01
LOOK_SECONDS = 0.005
"""How often a watch looks for news, or its end."""


@dataclass
class Fault:
    """What happens instead, so many times, to calls whose "METHOD path" begins so."""

    start: str
    status: int = 0
    """0: the connection is closed without an answer."""
    body: bytes = b""
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    is_done: bool = False
    """Do what was asked first: only the answer is lost."""
    before: Callable[[], None] | None = None
    """Runs first, as another client's write in between; then the call goes on, if there is no
    status."""


class Refusal(Exception):  # noqa: N818 - an answer, no error of ours
    """An answer that says no."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }


class QuietServer(ThreadingHTTPServer):
    """Its clients may disconnect at any time."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Ignore a client that is gone; print an error of our own."""
        if not isinstance(sys.exc_info()[1], ConnectionError | ssl.SSLError):
            super().handle_error(request, client_address)


class KubernetesDouble:
    """Serves on loopback between `with` and its end; can be stopped and started in between."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.calls: list[tuple[str, str, Any]] = []
        """Method, path with query, and body of each call."""
        self.faults: list[Fault] = []
        self.nodes: dict[str, Json] = {}
        self.leases: dict[str, Json] = {}
        self.is_gone_in_stream = True
        """Whether a watch from a version that is too old gets an error in the stream, or a 410."""
        self.is_up = False
        self.watches = 0
        """Watches that are open."""
        self._versions = itertools.count(1001)
        self._now = 1000
        self._oldest = 1000
        """Versions before it are compacted."""
        self._events: list[tuple[int, str, Json]] = []
        self._expired: set[str] = set()
        self._lock = threading.RLock()
        self._ends = 0
        self._port = 0
        self._server: QuietServer | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Serve, on the port it had before."""
        self._server = QuietServer(
            ("127.0.0.1", self._port), type("H", (Handler,), {"double": self})
        )
        self._port = self._server.server_address[1]
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(SHUTDOWN_SECONDS,), daemon=True
        )
        self._thread.start()
        self.is_up = True

    def stop(self) -> None:
        """As a server that dies: open watches end, new calls are refused."""
        if self._server is None or self._thread is None:
            return
        self.is_up = False
        self.end_watches()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self._port}"

    def writes(self, *, leases: bool = False) -> list[tuple[str, str, Any]]:
        """The calls that changed, or would change, something."""
        return [
            call for call in self.calls if call[0] != "GET" and (leases or "/leases" not in call[1])
        ]

    # --- what tests do -------------------------------------------------------------------------

    def add_node(self, name: str, **parts: Any) -> None:  # noqa: ANN401 - parts of a node
        """A node, as a kubelet registers it."""
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posting"}
        node = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {},
            "status": {"conditions": [ready], "nodeInfo": {"kubeletVersion": "v1.33.0"}},
        }
        with self._lock:
            self.put(merge(node, parts), "ADDED")

    def put(self, node: Json, kind: str) -> None:
        """Store a node with the next version, and send it to watches."""
        with self._lock:
            node["metadata"]["resourceVersion"] = self._next()
            self.nodes[node["metadata"]["name"]] = node
            self._events.append((self._now, kind, copy.deepcopy(node)))

    def change(self, name: str, patch: Json) -> None:
        """A write by another client."""
        with self._lock:
            self.put(merge(self.nodes[name], patch), "MODIFIED")

    def remove(self, name: str) -> None:
        """A node is taken away."""
        with self._lock:
            node = self.nodes.pop(name)
            node["metadata"]["resourceVersion"] = self._next()
            self._events.append((self._now, "DELETED", node))

    def compact(self) -> None:
        """Forget what has happened: versions that are known elsewhere are too old, pages too."""
        with self._lock:
            self._next()
            self._oldest = self._now
            self._events.clear()
            self._expired = {"*"}

    def end_watches(self) -> None:
        """End every open watch, as a server does after a while."""
        with self._lock:
            self._ends += 1

    def condition(self, name: str, kind: str = "FabricHealthy") -> Json | None:
        """A node's condition."""
        with self._lock:
            found: list[Json] = self.nodes[name].get("status", {}).get("conditions", [])
            return next((copy.deepcopy(one) for one in found if one["type"] == kind), None)

    def taints(self, name: str) -> list[str]:
        """A node's taints, as kubectl writes them."""
        with self._lock:
            found = self.nodes[name].get("spec", {}).get("taints") or []
            return [f"{one['key']}={one.get('value', '')}:{one['effect']}" for one in found]

    def _next(self) -> str:
        self._now = next(self._versions)
        return str(self._now)

    # --- one call ------------------------------------------------------------------------------

    def find_fault(self, method: str, target: str) -> Fault | None:
        """The fault that stands in a call's place, if there is one."""
        with self._lock:
            called = f"{method} {target}"
            fault = next((one for one in self.faults if called.startswith(one.start)), None)
            if fault is not None:
                fault.times -= 1
                if not fault.times:
                    self.faults.remove(fault)
            return fault

    def handle(self, method: str, target: str, token: str, kind: str, body: bytes) -> bytes:
        """The answer to a call that is no watch."""
        parts = urlsplit(target)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        content = json.loads(body) if body else {}
        with self._lock:
            nodes = re.fullmatch(r"/api/v1/nodes(?:/([^/]+)(/status)?)?", parts.path)
            if nodes:
                name, below = unquote(nodes[1] or ""), nodes[2] or ""
                found = self._on_nodes(method, token, kind, name, below, asked, content)
                return json.dumps(found).encode()
            leases = re.fullmatch(
                r"/apis/coordination\.k8s\.io/v1/namespaces/([^/]+)/leases(?:/([^/]+))?", parts.path
            )
            if leases:
                found = self._on_leases(method, token, unquote(leases[2] or ""), content)
                return json.dumps(found).encode()
        raise Refusal(404, "NotFound", "the server could not find the requested resource")

    def let_in(self, token: str, verb: str, resource: str) -> None:
        """Refuse a service account without the right."""
        if token == ADMIN:
            return
        if token not in RIGHTS:
            raise Refusal(401, "Unauthorized", "Unauthorized")
        if (verb, resource) not in RIGHTS[token]:
            who = f'User "system:serviceaccount:test:{token}"'
            words = f'{resource} is forbidden: {who} cannot {verb} resource "{resource}"'
            raise Refusal(403, "Forbidden", f"{words} at the cluster scope")

    # --- nodes ---------------------------------------------------------------------------------

    def _on_nodes(
        self, method: str, token: str, kind: str, name: str, below: str, asked: Json, body: Json
    ) -> Json:
        verb = {"GET": "get" if name else "list", "POST": "create"}.get(method, method.lower())
        self.let_in(token, verb, f"nodes{below}")
        if verb == "list":
            return self._list(asked)
        if verb == "create":
            if body["metadata"]["name"] in self.nodes:
                raise Refusal(409, "AlreadyExists", "nodes already exists")
            self.put({"spec": {}, "status": {}, **body}, "ADDED")
            return body
        if name not in self.nodes:
            raise Refusal(404, "NotFound", f'nodes "{name}" not found')
        if verb == "delete":
            self.remove(name)
            return {"kind": "Status", "status": "Success"}
        if verb == "patch":
            return self._patch(name, below, kind, body)
        return self.nodes[name]

    def _list(self, asked: Json) -> Json:
        names = sorted(self.nodes)
        after = str(asked.get("continue", ""))
        if after and self._expired & {"*", after}:
            self._expired.clear()
            raise Refusal(410, "Expired", "The provided continue parameter is too old")
        first = names.index(after) if after in names else 0
        limit = int(asked.get("limit", len(names)) or len(names)) or 1
        page, rest = names[first : first + limit], names[first + limit :]
        metadata: Json = {"resourceVersion": str(self._now)}
        if rest:
            metadata |= {"continue": rest[0], "remainingItemCount": len(rest)}
        items = [self.nodes[name] for name in page]
        return {"kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": items}

    def _patch(self, name: str, below: str, kind: str, patch: Json) -> Json:
        if kind not in {MERGE, STRATEGIC}:
            raise Refusal(415, "UnsupportedMediaType", f"the body of the request was {kind}")
        old = self.nodes[name]
        version = patch.get("metadata", {}).get("resourceVersion", "")
        if version not in {"", old["metadata"]["resourceVersion"]}:
            words = "the object has been modified; please apply your changes to the latest version"
            raise Refusal(
                409, "Conflict", f'Operation cannot be fulfilled on nodes "{name}": {words}'
            )
        new = merge(old, patch, is_strategic=kind == STRATEGIC)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        # The subresource changes the status alone, and the object all but the status.
        for part in ("spec",) if below else ("status",):
            new[part] = old.get(part, {})
        check_node(new)
        if new != old:
            self.put(new, "MODIFIED")
        return self.nodes[name]

    def watch(self, target: str, token: str, send: Callable[[bytes], None]) -> None:
        """Send what happens after a version, until it ends."""
        self.let_in(token, "watch", "nodes")
        asked = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        seen, ends = int(asked["resourceVersion"]), self._ends
        if seen < self._oldest:
            gone = Refusal(410, "Expired", f"too old resource version: {seen} ({self._oldest})")
            if not self.is_gone_in_stream:
                raise gone
            send(line_of("ERROR", gone.status))
            return
        send(b"")
        deadline = time.monotonic() + float(asked.get("timeoutSeconds", 60))
        self.watches += 1
        try:
            while self._ends == ends and time.monotonic() < deadline:
                with self._lock:
                    news = [event for event in self._events if event[0] > seen]
                for version, kind, node in news:
                    send(line_of(kind, node))
                    seen = version
                time.sleep(LOOK_SECONDS)
            mark = {"kind": "Node", "metadata": {"resourceVersion": str(max(seen, self._now))}}
            if asked.get("allowWatchBookmarks") == "true" and self._ends == ends:
                send(line_of("BOOKMARK", mark))
        finally:
            self.watches -= 1

    # --- leases --------------------------------------------------------------------------------

    def _on_leases(self, method: str, token: str, name: str, body: Json) -> Json:
        verb = {"GET": "get", "POST": "create", "PUT": "update"}.get(method, method.lower())
        self.let_in(token, verb, "leases")
        if verb == "create":
            name = body["metadata"]["name"]
            if name in self.leases:
                raise Refusal(409, "AlreadyExists", f'leases "{name}" already exists')
        elif name not in self.leases:
            raise Refusal(404, "NotFound", f'leases "{name}" not found')
        if verb == "get":
            return self.leases[name]
        if verb == "delete":
            return self.leases.pop(name)
        if verb == "update":
            version = body["metadata"].get("resourceVersion", "")
            if not version:
                words = "metadata.resourceVersion: must be specified for an update"
                raise Refusal(422, "Invalid", words)
            if version != self.leases[name]["metadata"]["resourceVersion"]:
                raise Refusal(409, "Conflict", f'cannot be fulfilled on leases "{name}"')
        check_lease(body)
        body["metadata"]["resourceVersion"] = self._next()
        self.leases[name] = body
        return body


def merge(old: Any, patch: Any, *, is_strategic: bool = False) -> Any:  # noqa: ANN401 - JSON
    """RFC 7386, and with it or without Kubernetes' lists that are merged by a field."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    new = copy.deepcopy(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            new.pop(name, None)
        elif is_strategic and name in MERGED_BY and isinstance(value, list):
            key = MERGED_BY[name]
            entries = {entry[key]: entry for entry in new.get(name, [])}
            for entry in value:
                before = entries.get(entry[key], {})
                entries[entry[key]] = merge(before, entry, is_strategic=True)
            new[name] = list(entries.values())
        else:
            new[name] = merge(new.get(name), value, is_strategic=is_strategic)
    return new


def check_node(node: Json) -> None:
    """Refuse what the API server refuses from every client."""
    taints = [(one.get("key"), one.get("effect")) for one in node["spec"].get("taints") or []]
    if len(set(taints)) < len(taints):
        raise Refusal(422, "Invalid", "spec.taints: Duplicate value: taints must be unique")
    for key, effect in taints:
        if not key or effect not in {"NoSchedule", "PreferNoSchedule", "NoExecute"}:
            raise Refusal(422, "Invalid", f"spec.taints: Unsupported value: {effect!r}")
    values = [one.get("value", "") for one in node["spec"].get("taints") or []]
    for value in (*node["metadata"].get("labels", {}).values(), *values):
        if not LABEL_VALUE.fullmatch(value):
            raise Refusal(422, "Invalid", f"metadata.labels: Invalid value: {value!r}")
    for condition in node["status"].get("conditions", []):
        if condition.get("status") not in {"True", "False", "Unknown"}:
            raise Refusal(422, "Invalid", "status.conditions.status: Unsupported value")


def check_lease(lease: Json) -> None:
    """The same for leases."""
    spec = lease["spec"]
    for name in ("acquireTime", "renewTime"):
        if name in spec and not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", spec[name]):
            raise Refusal(400, "BadRequest", f"{name}: parsing time {spec[name]!r}: no MicroTime")
    if spec.get("leaseDurationSeconds", 1) <= 0 or spec.get("leaseTransitions", 0) < 0:
        raise Refusal(422, "Invalid", "spec.leaseDurationSeconds: must be greater than 0")


def line_of(kind: str, thing: Json) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": thing}).encode() + b"\n"


class Handler(BaseHTTPRequestHandler):
    """The HTTP side of a double."""

    double: KubernetesDouble
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or the second half of every answer waits 40 ms

    def log_message(self, *_: object) -> None:
        """Nothing: tests read the calls."""

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def serve(self) -> None:
        """One call."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.double.is_up:
            self.close_connection = True
            return
        self.double.calls.append((self.command, self.path, json.loads(body) if body else None))
        fault = self.double.find_fault(self.command, self.path)
        try:
            if fault is not None and fault.before is not None:
                fault.before()
            elif fault is not None:
                self.fail(fault, body)
                return
            if self.command == "GET" and "watch=true" in self.path:
                self.stream()
            else:
                self.answer(201 if self.command == "POST" else 200, self.ask(body))
        except Refusal as refusal:
            self.answer(refusal.code, json.dumps(refusal.status).encode())

    def fail(self, fault: Fault, body: bytes) -> None:
        """What stands in the place of an answer."""
        if fault.is_done:
            self.ask(body)
        if fault.status:
            self.answer(fault.status, fault.body, fault.headers)
        else:
            self.close_connection = True

    def ask(self, body: bytes) -> bytes:
        """The answer's body."""
        kind = self.headers.get("Content-Type", "")
        return self.double.handle(self.command, self.path, self.token, kind, body)

    @property
    def token(self) -> str:
        """Who asks."""
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def stream(self) -> None:
        """A watch, in chunks."""
        is_begun = False

        def send(line: bytes) -> None:
            nonlocal is_begun
            if not is_begun:
                is_begun = True
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
            if line:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()

        try:
            self.double.watch(self.path, self.token, send)
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


for _method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
    setattr(Handler, f"do_{_method}", Handler.serve)
