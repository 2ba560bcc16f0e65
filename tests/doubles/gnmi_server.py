"""A small switch with real gNMI: its tree is a dictionary, and the test sets its behaviour.

It knows STREAM subscriptions with SAMPLE and ON_CHANGE, passwords, TLS and capabilities, and it
misbehaves on request: refuses paths or ON_CHANGE, never syncs, floods, sends bytes that are no
message, hangs up.
"""

import contextlib
import datetime as dt
import ipaddress
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pygnmi.spec.v080 import gnmi_pb2

from collector.switches.gnmi.decode import parse_path

DEADLINE_SECONDS = 20.0
"""How long a test waits for what must happen; reached only by a test that fails."""
SUBSCRIBERS_MAX = 16

Tree = dict[str, Any]
"""Paths as text, and what is there."""


def wait_until(is_true: Callable[[], object], what: str) -> None:
    """Wait for a condition; AssertionError after the deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_true():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.005)


# --- messages ------------------------------------------------------------------------------------


def make_path(text: str) -> Any:  # noqa: ANN401 - generated code without types
    path = gnmi_pb2.Path()
    for name, keys in parse_path(text):
        path.elem.add(name=name, key=dict(keys))
    return path


def make_value(value: Any, encoding: str) -> Any:  # noqa: ANN401, PLR0911 - any value
    """The value as the switch would encode it; in IETF's JSON 64-bit numbers are strings."""
    if encoding == "json_ietf":
        return gnmi_pb2.TypedValue(json_ietf_val=json.dumps(as_ietf(value)).encode())
    if encoding == "json":
        return gnmi_pb2.TypedValue(json_val=json.dumps(value).encode())
    if isinstance(value, bool):
        return gnmi_pb2.TypedValue(bool_val=value)
    if isinstance(value, int):
        return gnmi_pb2.TypedValue(uint_val=value)
    if isinstance(value, float):
        return gnmi_pb2.TypedValue(double_val=value)
    if isinstance(value, list):
        elements = [make_value(each, encoding) for each in value]
        return gnmi_pb2.TypedValue(leaflist_val=gnmi_pb2.ScalarArray(element=elements))
    return gnmi_pb2.TypedValue(string_val=value)


def as_ietf(value: Any) -> Any:  # noqa: ANN401 - any value
    if isinstance(value, dict):
        return {name: as_ietf(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [as_ietf(inner) for inner in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


def tell(
    tree: Tree,
    *,
    encoding: str = "json_ietf",
    prefix: str = "",
    deletes: tuple[str, ...] = (),
    time_ns: int | None = None,
) -> Any:  # noqa: ANN401 - generated code without types
    """A SubscribeResponse with all of these updates."""
    said = gnmi_pb2.Notification(
        timestamp=time.time_ns() if time_ns is None else time_ns, prefix=make_path(prefix)
    )
    for path, value in tree.items():
        said.update.add(path=make_path(path), val=make_value(value, encoding))
    for path in deletes:
        said.delete.append(make_path(path))
    return gnmi_pb2.SubscribeResponse(update=said)


SYNC = gnmi_pb2.SubscribeResponse(sync_response=True)


# --- certificates --------------------------------------------------------------------------------


class Certificates(NamedTuple):
    """A certificate authority and a server's certificate signed by it."""

    ca_file: Path
    cert: bytes
    key: bytes


def make_certificates(folder: Path, name: str = "leaf-1.example") -> Certificates:
    """Fresh ones; the server's is for ``name``, not for 127.0.0.1."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test authority")])
    our_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)

    def sign(subject: x509.Name, public: Any, *, is_ca: bool) -> x509.Certificate:  # noqa: ANN401
        names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("192.0.2.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(ca_key, hashes.SHA256())
        )

    pem = serialization.Encoding.PEM
    ca_file = folder / f"{name}-ca.pem"
    ca_file.write_bytes(sign(ca_name, ca_key.public_key(), is_ca=True).public_bytes(pem))
    return Certificates(
        ca_file,
        sign(our_name, key.public_key(), is_ca=False).public_bytes(pem),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


# --- the switch ----------------------------------------------------------------------------------


class GnmiServer:
    """One switch on 127.0.0.1. Set its manners before something subscribes."""

    def __init__(self, tree: Tree | None = None, certificates: Certificates | None = None) -> None:
        self.tree: Tree = dict(tree or {})
        self.port = 0
        self.encodings: tuple[str, ...] = ("JSON_IETF", "PROTO")
        self.has_capabilities = True
        self.login: tuple[str, str] | None = None
        self.refuses_on_change = False
        self.refused: tuple[str, ...] = ()
        """Paths that it refuses as unknown."""
        self.syncs = True
        self.talk: Callable[[], Iterator[Any]] | None = None
        """What it sends instead of its tree: messages, or bytes that are none."""
        self.requests: list[Any] = []
        """Every SubscriptionList that was accepted."""
        self._certificates = certificates
        self._subscribers: list[queue.SimpleQueue[Any]] = []
        self._lock = threading.Lock()
        self._server: Any = None

    def start(self) -> None:
        """Listen; again on the same port if it had one."""
        self._server = grpc.server(ThreadPoolExecutor(SUBSCRIBERS_MAX))
        handlers = {
            "Capabilities": grpc.unary_unary_rpc_method_handler(
                self._capabilities,
                gnmi_pb2.CapabilityRequest.FromString,
                gnmi_pb2.CapabilityResponse.SerializeToString,
            ),
            "Subscribe": grpc.stream_stream_rpc_method_handler(
                self._subscribe,
                gnmi_pb2.SubscribeRequest.FromString,
                lambda said: said if isinstance(said, bytes) else said.SerializeToString(),
            ),
        }
        generic = grpc.method_handlers_generic_handler("gnmi.gNMI", handlers)
        self._server.add_generic_rpc_handlers((generic,))
        address = f"127.0.0.1:{self.port}"
        if self._certificates is None:
            self.port = self._server.add_insecure_port(address)
        else:
            pair = (self._certificates.key, self._certificates.cert)
            credentials = grpc.ssl_server_credentials([pair])
            self.port = self._server.add_secure_port(address, credentials)
        self._server.start()

    def stop(self) -> None:
        """Close every subscription."""
        self.hang_up()
        self._server.stop(grace=None).wait()

    def say(self, message: Any) -> None:  # noqa: ANN401 - a message or bytes
        """Send to every subscriber."""
        with self._lock:
            for subscriber in self._subscribers:
                subscriber.put(message)

    def set(self, path: str, value: Any, encoding: str = "json_ietf") -> None:  # noqa: ANN401
        """Change the tree and send the update, as ON_CHANGE does."""
        self.tree[path] = value
        self.say(tell({path: value}, encoding=encoding))

    def hang_up(self) -> None:
        """End every stream; the switch itself goes on."""
        self.say(None)

    @property
    def listeners(self) -> int:
        """How many streams there are now."""
        with self._lock:
            return len(self._subscribers)

    # --- calls -------------------------------------------------------------------------------

    def _check_login(self, context: Any) -> None:  # noqa: ANN401 - untyped
        said = dict(context.invocation_metadata())
        if self.login and (said.get("username"), said.get("password")) != self.login:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong user or password")

    def _capabilities(self, _: Any, context: Any) -> Any:  # noqa: ANN401 - untyped
        self._check_login(context)
        if not self.has_capabilities:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such call")
        encodings = [gnmi_pb2.Encoding.Value(name) for name in self.encodings]
        return gnmi_pb2.CapabilityResponse(gNMI_version="0.8.0", supported_encodings=encodings)

    def _subscribe(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: ANN401
        self._check_login(context)
        wanted = next(requests).subscribe
        self._refuse(wanted, context)
        news: queue.SimpleQueue[Any] = queue.SimpleQueue()
        context.add_callback(lambda: news.put(None))
        with self._lock:
            self.requests.append(wanted)
            self._subscribers.append(news)
        try:
            yield from (self.talk or (lambda: self._tell_tree(wanted)))()
            if self.syncs:
                yield SYNC
            yield from self._go_on(wanted, news)
        finally:
            with self._lock:
                self._subscribers.remove(news)

    def _refuse(self, wanted: Any, context: Any) -> None:  # noqa: ANN401 - untyped
        for each in wanted.subscription:
            names = "/" + "/".join(element.name for element in each.path.elem)
            if any(names.startswith(path) for path in self.refused):
                context.abort(grpc.StatusCode.NOT_FOUND, f"no such path {names}")
            if each.mode == gnmi_pb2.ON_CHANGE and self.refuses_on_change:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "ON_CHANGE is not supported")

    def _tell_tree(self, wanted: Any) -> Iterator[Any]:  # noqa: ANN401 - untyped
        encoding = gnmi_pb2.Encoding.Name(wanted.encoding).lower()
        if self.tree:
            yield tell(self.tree, encoding=encoding)

    def _go_on(self, wanted: Any, news: "queue.SimpleQueue[Any]") -> Iterator[Any]:  # noqa: ANN401
        """What is new, and all of it again at every interval of a SAMPLE subscription."""
        intervals = [each.sample_interval / 1e9 for each in wanted.subscription if each.mode != 1]
        while True:
            message: Any = ()
            with contextlib.suppress(queue.Empty):
                message = news.get(timeout=min(intervals, default=DEADLINE_SECONDS))
            if message is None:
                return
            if message == ():
                yield from self._tell_tree(wanted)
            else:
                yield message


Server = TypeVar("Server", bound=GnmiServer)


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """The switch, listening."""
    server.start()
    try:
        yield server
    finally:
        server.stop()
