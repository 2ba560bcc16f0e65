"""The service's settings: which layer wins, the error for a mistake, what must not start."""

from pathlib import Path

import pytest

from api.http.settings import load_service_settings
from collector.contract.errors import SettingsError
from collector.contract.measurement import MeasurementKind


def write(folder: Path, text: str) -> Path:
    file = folder / "service.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_file_then_environment_then_flag(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        'data = "/file"\nlisten = "127.0.0.1:1"\nlog_level = "error"\n'
        "[retention_days]\nsamples = 1\nevents = 2\n",
    )
    environment = {
        "FABRICSCOPE_LISTEN": "127.0.0.1:2",
        "FABRICSCOPE_DATA": "/environment",
        "FABRICSCOPE_RETENTION_DAYS__SAMPLES": "7",
        "FABRICSCOPE_AGENT_HOST": "the agent's, not ours",
        "PATH": "/bin",
    }
    flags = {"listen": "127.0.0.1:3", "data": None}
    settings = load_service_settings(file, flags, environment)
    assert settings.listen == "127.0.0.1:3"
    assert settings.data == "/environment"
    assert settings.log_level == "error"
    assert (settings.retention_days.samples, settings.retention_days.events) == (7, 2)
    assert settings.retention_days.series == 30


def test_defaults_are_a_service_for_this_machine_alone() -> None:
    settings = load_service_settings(None, {}, {})
    assert settings.address == ("127.0.0.1", 9700)
    assert settings.is_loopback
    assert not settings.token_need
    assert settings.store_url == f"chdb://{settings.data_path}/telemetry"
    assert settings.inventory_url == f"sqlite:///{settings.data_path}/inventory.db"


@pytest.mark.parametrize(
    ("text", "environment", "message"),
    [
        ('lisen = "x"', {}, "service.toml: unknown setting 'lisen'; did you mean 'listen'?"),
        (
            "[retention_days]\nsample = 1",
            {},
            "'retention_days.sample'; did you mean 'retention_days.samples'?",
        ),
        ("retention_days = 7", {}, "retention_days = 7: must be a table"),
        ("data = 7", {}, "data = 7: Expected `str`"),
        ("data = ", {}, "not a TOML file"),
        ('[retention_days]\nsamples = "7"', {}, "samples = '7'"),
        (
            "",
            {"FABRICSCOPE_LISTN": "x"},
            "environment: unknown setting 'listn'; did you mean 'listen'?",
        ),
        (
            "",
            {"FABRICSCOPE_ZZZ": "x"},
            "unknown setting 'zzz'; there are: accept_alerts, alertmanagers, allowed_hosts, ",
        ),
        ("", {"FABRICSCOPE_RETENTION_DAYS__SAMPLES": "a week"}, "samples = 'a week'"),
        ("", {"FABRICSCOPE_RETENTION_DAYS": "7"}, "must be a table"),
    ],
)
def test_a_mistake_is_told_where_and_what(
    tmp_path: Path, text: str, environment: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load_service_settings(write(tmp_path, text), {}, environment)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nothing\.toml: No such file"):
        load_service_settings(tmp_path / "nothing.toml", {}, {})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"listen": "9700"}, "write HOST:PORT"),
        ({"listen": ":9700"}, "write HOST:PORT"),
        ({"listen": "127.0.0.1:"}, "write HOST:PORT"),
        ({"listen": "127.0.0.1:65536"}, "a port is 0 to 65535"),
        ({"listen": "127.0.0.1:x"}, "write HOST:PORT"),
        ({"listen": "127.0.0.1:²"}, "write HOST:PORT"),
        ({"otlp_grpc_listen": "4317"}, "otlp_grpc_listen is '4317'; write HOST:PORT"),
        ({"otlp_grpc_listen": "[::]:4317", "role": "query"}, "which takes no telemetry"),
        ({"tls_key": "k"}, "go together"),
        ({"tls_certificate": "c"}, "go together"),
        ({"retention_days": {"samples": 0}}, "retention_days.samples is 0; between 1 and 3650"),
        ({"retention_days": {"events": 4000}}, "retention_days.events is 4000"),
        ({"token_file": "/no/such/file"}, "token_file /no/such/file: No such file"),
        ({"ask_back": "flight_recorder"}, "the service can request burst_capture, ras_status"),
        ({"ask_back": ["burst_capture", "guess"]}, "ask_back has guess"),
    ],
)
def test_what_cannot_work_is_refused(flags: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_service_settings(None, flags, {})
    assert message in str(caught.value)


def test_unsure_verdicts_ask_for_captures_unless_they_are_told_not_to() -> None:
    both = {MeasurementKind.BURST_CAPTURE, MeasurementKind.RAS_STATUS}
    assert load_service_settings(None, {}, {}).kinds_asked == both
    assert load_service_settings(None, {"ask_back": ""}, {}).kinds_asked == frozenset()
    assert load_service_settings(None, {}, {"FABRICSCOPE_ASK_BACK": ""}).kinds_asked == frozenset()


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.1", "node-0", "192.168.1.1"])  # noqa: S104
def test_who_can_be_reached_by_others_asks_for_tokens(host: str) -> None:
    settings = load_service_settings(None, {"listen": f"{host}:9700"}, {})
    assert settings.token_need
    assert not settings.is_loopback


def test_an_address_for_grpc_that_others_can_reach_asks_for_tokens() -> None:
    given = {"otlp_grpc_listen": "0.0.0.0:4317"}
    assert "otlp_grpc_listen is 0.0.0.0:4317" in load_service_settings(None, given, {}).token_need
    given = {"otlp_grpc_listen": "[::1]:4317"}
    assert not load_service_settings(None, given, {}).token_need


def test_a_token_for_top_in_the_same_shell_is_no_setting() -> None:
    settings = load_service_settings(None, {}, {"FABRICSCOPE_TOKEN": "x", "FABRICSCOPE_DATA": "/d"})
    assert settings.data == "/d"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"])
def test_loopback_needs_none(host: str) -> None:
    settings = load_service_settings(None, {"listen": f"{host}:9700"}, {})
    assert settings.is_loopback
    assert not settings.token_need


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"short\n", b"0123456789abcdef\nshort\n", b"\xff" * 20]
)
def test_tokens_that_can_be_guessed_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "tokens"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match="token_file"):
        load_service_settings(None, {"token_file": str(file)}, {})
