"""A real switch over gRPC. Behind the door: `Host.gnmi` makes these, sources never do.

Of pygnmi only the generated protobufs are used. Its client would be in the way: it takes whatever
certificate the switch shows for trustworthy unless three files are given, waits for capabilities
without an end, puts every message into a queue without a bound, listens on a thread that keeps the
process from ending, drops leaf-lists, and writes to standard output.
"""

from __future__ import annotations

import math
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from collector.contract.reason import UnreadReason
from collector.switches.gnmi.decode import DecodeError, Decoder, parse_path
from collector.switches.gnmi.model import GnmiError, Message, Nonsense, Request, Target

ANSWER_SECONDS = 10.0
"""For the connection and the first answer; a switch under load takes a second or two."""
MESSAGE_BYTES_MAX = 16 << 20
"""One message. SONiC sends all counters of 64 ports at once, about 400 kB of JSON."""
KEEPALIVE_SECONDS = 300
"""gRPC servers hang up on clients that ping more often than every five minutes. Streams with
counters are watched by their silence, which is seen much sooner."""
DETAIL_CHARS_MAX = 300
PREFERRED_ENCODINGS = ("JSON_IETF", "JSON", "PROTO")
"""JSON first: SONiC's proto is not gNMI's."""

_REFUSED_US = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
_REFUSED_WHAT = frozenset({"INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "OUT_OF_RANGE"})
_TLS_WORDS = ("ssl", "tls", "certificate", "handshake", "alpn", "verification")


class Library(NamedTuple):
    """The packages of the extra `gnmi`; untyped, see pyproject.toml."""

    grpc: Any
    messages: Any
    decode_error: type[Exception]


def load_library() -> Library:
    """Import the packages that only agents of switches have installed."""
    # Its core writes every failed connection to standard error by itself; we name each once.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import grpc  # noqa: PLC0415 - see above
        from google.protobuf.message import DecodeError as ProtobufError  # noqa: PLC0415
        from pygnmi.spec.v080 import gnmi_pb2  # noqa: PLC0415
    except ImportError as error:
        detail = f"gNMI needs more packages ({error.name}): pip install 'fabricscope[gnmi]'"
        raise GnmiError(UnreadReason.ABSENT, detail) from error
    return Library(grpc, gnmi_pb2, ProtobufError)


class LiveConnection:
    """A `collector.switches.gnmi.model.Connection` to one switch, used for one subscription."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._hang_up: list[Callable[[], object]] = []

    def subscribe(self, request: Request) -> Iterator[Message]:
        """See `Connection`. Reads one message at a time: what is not read waits in the switch."""
        library = load_library()
        metadata = read_login(self._target)
        channel = open_channel(library, self._target)
        self._when_cancelled(channel.close)
        try:
            encoding = self._choose_encoding(library, channel, metadata)
            question = make_question(library.messages, request, encoding)
            call = channel.stream_stream(
                "/gnmi.gNMI/Subscribe",
                request_serializer=library.messages.SubscribeRequest.SerializeToString,
                response_deserializer=None,  # so that one broken message does not end the stream
            )(self._questions(question), metadata=metadata)
            self._when_cancelled(call.cancel)
            yield from self._listen(library, call)
        except library.grpc.RpcError as error:
            raise explain(error, self._target) from error
        except ValueError as error:  # gRPC's error for a channel that was closed meanwhile
            raise GnmiError(
                UnreadReason.UNREADABLE, f"the connection was closed: {error}"
            ) from error

    def cancel(self) -> None:
        with self._lock:
            self._ended.set()
            actions, self._hang_up = self._hang_up, []
        for action in reversed(actions):
            action()

    def close(self) -> None:
        self.cancel()

    def _when_cancelled(self, action: Callable[[], object]) -> None:
        with self._lock:
            if not self._ended.is_set():
                self._hang_up.append(action)
                return
        action()

    def _questions(self, question: object) -> Iterator[object]:
        """The one request. The request stream stays open: some switches end the call with it."""
        yield question
        self._ended.wait()

    def _choose_encoding(self, library: Library, channel: Any, metadata: Any) -> int:  # noqa: ANN401
        """The number of the encoding to ask for; it also proves that the switch answers at all."""
        messages = library.messages
        ask = channel.unary_unary(
            "/gnmi.gNMI/Capabilities",
            request_serializer=messages.CapabilityRequest.SerializeToString,
            response_deserializer=messages.CapabilityResponse.FromString,
        )
        offered: set[int] = set()
        try:
            answer = ask(messages.CapabilityRequest(), timeout=ANSWER_SECONDS, metadata=metadata)
            offered = set(answer.supported_encodings)
        except library.grpc.RpcError as error:
            if error.code().name != "UNIMPLEMENTED":
                raise
        names = [name for name in PREFERRED_ENCODINGS if messages.Encoding.Value(name) in offered]
        chosen = self._target.encoding.upper() or next(iter(names), PREFERRED_ENCODINGS[0])
        return int(messages.Encoding.Value(chosen))

    def _listen(self, library: Library, call: Any) -> Iterator[Message]:  # noqa: ANN401 - untyped
        decoder = Decoder()
        parse = library.messages.SubscribeResponse.FromString
        for data in call:
            try:
                response = parse(data)
            except library.decode_error:
                yield Nonsense(f"{len(data)} bytes that are no gNMI message")
                continue
            yield decoder.decode(response)


# --- asking --------------------------------------------------------------------------------------


def make_question(messages: Any, request: Request, encoding: int) -> Any:  # noqa: ANN401 - untyped
    wanted = messages.SubscriptionList(
        mode=messages.SubscriptionList.STREAM,
        encoding=encoding,
        prefix=messages.Path(target=request.target, origin=request.origin),
    )
    for each in request.subscriptions:
        path = messages.Path(origin=request.origin)
        try:
            elements = parse_path(each.path)
        except DecodeError as error:
            raise GnmiError(UnreadReason.UNPARSEABLE, f"path {each.path}: {error}") from error
        for name, keys in elements:
            path.elem.add(name=name, key=dict(keys))
        mode = messages.ON_CHANGE if each.on_change else messages.SAMPLE
        interval_ns = 0 if each.on_change else math.ceil(each.seconds * 1e9)
        wanted.subscription.add(path=path, mode=mode, sample_interval=interval_ns)
    return messages.SubscribeRequest(subscribe=wanted)


# --- connecting ----------------------------------------------------------------------------------


def open_channel(library: Library, target: Target) -> Any:  # noqa: ANN401 - untyped
    """A channel of its own; nothing is sent yet, except with `skip_verify`."""
    grpc = library.grpc
    host = f"[{target.host}]" if ":" in target.host else target.host
    options = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
        ("grpc.use_local_subchannel_pool", 1),  # a new attempt is a new connection
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),  # the environment's proxies are for people's downloads
        ("grpc.primary_user_agent", "fabricscope"),
    ]
    address = f"{host}:{target.port}"
    if not target.tls:
        return grpc.insecure_channel(address, options=options)
    root = read_file(target.ca_file) if target.ca_file else None
    name = target.server_name
    if target.skip_verify:
        root, shown_name = fetch_certificate(target)
        name = name or shown_name
    if name:
        options.append(("grpc.ssl_target_name_override", name))
    credentials = grpc.ssl_channel_credentials(
        root_certificates=root,
        private_key=read_file(target.key_file) if target.key_file else None,
        certificate_chain=read_file(target.cert_file) if target.cert_file else None,
    )
    return grpc.secure_channel(address, credentials, options=options)


def read_file(path: str) -> bytes:
    try:
        return FilePath(path).read_bytes()
    except OSError as error:
        raise GnmiError(UnreadReason.UNREADABLE, f"{path}: {error.strerror}") from error


def read_login(target: Target) -> tuple[tuple[str, str], ...]:
    """User and password as gNMI's specification requires: metadata of every call."""
    if not target.user:
        return ()
    password = ""
    if target.password_file:
        password = read_file(target.password_file).decode("utf-8", "replace").strip()
    for what, text in (("user", target.user), ("password", password)):
        if not (text.isascii() and text.isprintable()):
            detail = f"the {what} has characters that gRPC cannot send: printable ASCII only"
            raise GnmiError(UnreadReason.UNREADABLE, detail)
    return (("username", target.user), ("password", password))


def fetch_certificate(target: Target) -> tuple[bytes, str]:
    """The certificate that the switch shows, and a name in it: gRPC cannot skip the check."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    address = (target.host, target.port)
    try:
        with (
            socket.create_connection(address, ANSWER_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=target.host) as secure,
        ):
            shown = secure.getpeercert(binary_form=True)
    except TimeoutError as error:
        raise GnmiError(UnreadReason.TIMEOUT, f"no answer within {ANSWER_SECONDS:g} s") from error
    except ssl.SSLError as error:
        raise GnmiError(UnreadReason.UNREADABLE, f"TLS: {error.reason}") from error
    except OSError as error:
        raise GnmiError(UnreadReason.UNREADABLE, error.strerror or str(error)) from error
    if not shown:
        raise GnmiError(UnreadReason.UNREADABLE, "TLS: the switch shows no certificate")
    return ssl.DER_cert_to_PEM_cert(shown).encode(), name_in_certificate(shown)


def name_in_certificate(data: bytes) -> str:
    """A name or address that the certificate is for; empty if it has none."""
    from cryptography import x509  # noqa: PLC0415 - comes with pygnmi

    try:
        certificate = x509.load_der_x509_certificate(data)
        names = [
            str(each.value)
            for each in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        ]
        kinds = x509.SubjectAlternativeName
        extension = certificate.extensions.get_extension_for_class(kinds).value
        names = [
            *extension.get_values_for_type(x509.DNSName),
            *(str(each) for each in extension.get_values_for_type(x509.IPAddress)),
            *names,
        ]
    except x509.ExtensionNotFound:
        pass
    except (ValueError, x509.DuplicateExtension) as error:
        raise GnmiError(UnreadReason.UNPARSEABLE, f"TLS: a broken certificate: {error}") from error
    return next(iter(names), "")


# --- refusals ------------------------------------------------------------------------------------


def explain(error: Any, target: Target) -> GnmiError:  # noqa: ANN401, PLR0911 - untyped; a list of cases
    code, details = error.code().name, (error.details() or "")[:DETAIL_CHARS_MAX]
    if code in _REFUSED_US:
        return GnmiError(
            UnreadReason.UNREADABLE, f"it refuses user {target.user!r}: {code}: {details}"
        )
    if code in _REFUSED_WHAT:
        return GnmiError(
            UnreadReason.NOT_SUPPORTED, f"it refuses what was asked: {code}: {details}"
        )
    if code == "DEADLINE_EXCEEDED":
        return GnmiError(UnreadReason.TIMEOUT, f"no answer within {ANSWER_SECONDS:g} s")
    if code == "RESOURCE_EXHAUSTED":
        bound = f"MESSAGE_BYTES_MAX = {MESSAGE_BYTES_MAX}"
        return GnmiError(UnreadReason.UNPARSEABLE, f"too large a message ({bound}): {details}")
    if target.tls and any(word in details.lower() for word in _TLS_WORDS):
        return GnmiError(UnreadReason.UNREADABLE, f"TLS: {details}")
    if code == "UNAVAILABLE":
        is_there = "refused" not in details and not target.tls
        hint = " (if it wants TLS: tls = true)" if is_there else ""
        return GnmiError(UnreadReason.UNREADABLE, f"out of reach: {details}{hint}")
    reason = (
        UnreadReason.UNPARSEABLE if code in {"INTERNAL", "UNKNOWN"} else UnreadReason.UNREADABLE
    )
    return GnmiError(reason, f"{code}: {details}")
