"""OTLP over gRPC: a real client, a real service; what is stored, and what refusals say."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from starlette.types import Receive, Scope, Send

from api.base.limits import BODY_BYTES_MAX
from api.http.grpc_door import RETRY_INFO, SERVICE, GrpcDoor, status_details
from tests.doubles.gnmi_server import Certificates, make_certificates
from tests.stands.ports import free_port
from tests.stands.service import ServiceProcess, launch, read_samples

TOKEN = "a-token-of-a-switch-that-is-long-enough"  # noqa: S105 - of this test alone
SECONDS = 60


def request(value: float = 7.0, host: str = "leaf-1") -> ExportMetricsServiceRequest:
    made = ExportMetricsServiceRequest()
    resource = made.resource_metrics.add()
    attribute = resource.resource.attributes.add()
    attribute.key, attribute.value.string_value = "host.name", host
    metric = resource.scope_metrics.add().metrics.add()
    metric.name = "nvswitch.temperature"
    point = metric.gauge.data_points.add()
    point.as_double, point.time_unix_nano = value, time.time_ns()
    return made


class Sender:
    """A client as an SDK makes it."""

    def __init__(self, port: int) -> None:
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._export = self.channel.unary_unary(f"/{SERVICE}/Export")

    def send(self, body: bytes, token: str = TOKEN) -> ExportMetricsServiceResponse:
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        compressed = grpc.Compression.Gzip
        answer = self._export(body, timeout=SECONDS, metadata=metadata, compression=compressed)
        made = ExportMetricsServiceResponse()
        made.MergeFromString(answer)
        return made

    def refusal(self, body: bytes, token: str = TOKEN) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.RpcError) as refused:
            self.send(body, token)
        return refused.value.code(), refused.value.details()


def write_settings(folder: Path, listen: str) -> str:
    file = folder / "service.toml"
    file.write_text(f'otlp_grpc_listen = "{listen}"\n', "utf-8")
    return str(file)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, Sender]]:
    folder = tmp_path_factory.mktemp("grpc")
    tokens = folder / "tokens"
    tokens.write_text(f"{TOKEN} ingest,read hosts=leaf-* switches\n", "utf-8")
    tokens.chmod(0o600)
    port = free_port()
    words = ("--config", write_settings(folder, f"127.0.0.1:{port}"), "--token-file", str(tokens))
    with ServiceProcess(folder / "data", *words) as service:
        service.client.headers["Authorization"] = f"Bearer {TOKEN}"
        sender = Sender(port)
        yield service, sender
        sender.channel.close()
        assert service.stop() == 0


def test_what_is_pushed_over_grpc_is_durable_when_it_is_acknowledged(
    running: tuple[ServiceProcess, Sender],
) -> None:
    service, sender = running
    answer = sender.send(request(7.0).SerializeToString())
    assert not answer.partial_success.rejected_data_points
    (series,) = read_samples(service.client, '{__name__="nvswitch_temperature"}')
    assert series["labels"]["host"] == "leaf-1"


def test_hosts_of_another_token_are_refused_in_part_by_name(
    running: tuple[ServiceProcess, Sender],
) -> None:
    both = request()
    both.MergeFrom(request(host="spine-9"))
    answer = running[1].send(both.SerializeToString())
    assert answer.partial_success.rejected_data_points == 1
    assert "host" in answer.partial_success.error_message


@pytest.mark.parametrize(
    ("body", "token", "code"),
    [
        (b"\xff\xff\xff", TOKEN, grpc.StatusCode.INVALID_ARGUMENT),
        (b"", "", grpc.StatusCode.UNAUTHENTICATED),
        (b"", "wrong", grpc.StatusCode.UNAUTHENTICATED),
        (b"\0" * (BODY_BYTES_MAX + 1), TOKEN, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
    ids=["no_request", "no_token", "wrong_token", "too_large"],
)
def test_refusals_have_grpc_s_codes_and_words(
    running: tuple[ServiceProcess, Sender], body: bytes, token: str, code: grpc.StatusCode
) -> None:
    found, words = running[1].refusal(body, token)
    assert found == code
    assert words


def test_another_method_is_not_there(running: tuple[ServiceProcess, Sender]) -> None:
    other = running[1].channel.unary_unary(
        "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
    )
    with pytest.raises(grpc.RpcError) as refused:
        other(b"", timeout=SECONDS)
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_an_address_that_is_taken_is_said_before_anything_is_made(
    running: tuple[ServiceProcess, Sender], tmp_path: Path
) -> None:
    taken = f"127.0.0.1:{running[0].port}"
    settings = write_settings(tmp_path, taken)
    listen = f"127.0.0.1:{free_port()}"
    words = ["serve", "--data", str(tmp_path / "second"), "--listen", listen, "--config", settings]
    assert launch(words, tmp_path / "log").wait(SECONDS) == 2
    assert "in use" in (tmp_path / "log").read_text()
    assert not (tmp_path / "second").exists()


def test_details_say_when_to_come_again() -> None:
    """A google.rpc.Status: code, message, and one detail."""
    details = status_details(grpc.StatusCode.UNAVAILABLE, "busy", 12)
    assert details.startswith(bytes([0x08, 14, 0x12, 4]) + b"busy\x1a")
    detail = AnyMessage.FromString(details[10:])
    assert (detail.type_url, detail.value) == (RETRY_INFO, bytes([0x0A, 2, 0x08, 12]))


async def accept(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that takes everything."""
    assert (await receive())["body"] == b"bytes"
    assert scope["client"][0] == "127.0.0.1"
    headers = [(b"content-type", b"application/x-protobuf")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def test_its_certificate_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """Two authorities after each other: a client that trusts the second is served then."""
    first, second = (make_certificates(tmp_path, f"{name}.example") for name in ("one", "two"))
    files = tmp_path / "cert.pem", tmp_path / "key.pem"

    def put(pair: Certificates, age_ns: int) -> None:
        for file, content in zip(files, (pair.cert, pair.key), strict=True):
            file.write_bytes(content)
            os.utime(file, ns=(age_ns, age_ns))

    async def call(door: GrpcDoor, pair: Certificates, name: str) -> bytes:
        credentials = grpc.ssl_channel_credentials(pair.ca_file.read_bytes())
        options = (("grpc.ssl_target_name_override", name),)
        address = f"127.0.0.1:{door.port}"
        async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
            answer: bytes = await channel.unary_unary(f"/{SERVICE}/Export")(b"bytes", timeout=30)
            return answer

    async def both() -> None:
        put(first, 10**18)
        names = str(files[0]), str(files[1])
        door = GrpcDoor(accept, "127.0.0.1:0", names, is_shared=False)
        await door.open()
        assert await call(door, first, "one.example") == b""
        put(second, 2 * 10**18)
        assert await call(door, second, "two.example") == b""
        await door.close()

    asyncio.run(both())
