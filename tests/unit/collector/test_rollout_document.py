"""What a configuration from the service may set, and what is refused by name."""

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from collector.agent.rollout import check
from collector.agent.rollout.document import (
    OF_AGENT,
    OF_EVERY_SOURCE,
    OF_SOURCE,
    STAYS,
    check_document,
    read_document,
)
from collector.agent.settings import AgentSettings, load_settings
from collector.contract.errors import SettingsError
from collector.contract.rollout import DOCUMENT_BYTES_MAX, is_signed, read_key, sign
from collector.sources import discover

TYPES = {name: source.Settings for name, source in discover().items()}
TEXTS = {"devices", "interfaces", "include", "exclude", "line_rates"}
"""Names of devices and interfaces: all text that may come from outside."""


def refusal(document: str) -> str:
    with pytest.raises(SettingsError) as caught:
        check_document(document.encode(), TYPES, "configuration")
    return str(caught.value)


def test_every_source_is_in_the_table_and_every_name_there_is_a_setting() -> None:
    assert OF_SOURCE.keys() == TYPES.keys()
    for name, allowed in OF_SOURCE.items():
        fields = {field.name for field in msgspec.structs.fields(TYPES[name])}
        assert allowed <= fields, name
        assert fields >= OF_EVERY_SOURCE, name
    assert set(AgentSettings.__struct_fields__) >= OF_AGENT


def test_no_path_address_secret_or_program_is_in_the_table() -> None:
    """Of what is text only patterns of names are; a new one needs a thought, and a line here."""
    for name, allowed in OF_SOURCE.items():
        for field in msgspec.structs.fields(TYPES[name]):
            if field.name in allowed and field.name not in TEXTS:
                made = getattr(TYPES[name](), field.name)
                assert isinstance(made, bool | int | float), f"{name}.{field.name}"


@pytest.mark.parametrize(
    ("document", "key"),
    [
        *((f"{key} = 's3cret'", key) for key in ("host", "cluster", "service_url", "token")),
        *((f"{key} = 's3cret'", key) for key in ("token_file", "ca_file", "spool_dir", "listen")),
        ("spool_bytes_max = 1", "spool_bytes_max"),
        ("[labels]\nrack = 's3cret'", "labels"),
        ("[configuration]\nfrom_service = false", "configuration"),
        ("[configuration]\nkey_file = 's3cret'", "configuration"),
        ("[sources.snmp]\ncommunity = 's3cret'", "sources.snmp.community"),
        ("[sources.snmp]\nenabled = true", "sources.snmp.enabled"),
        ("[sources.ib_fabric]\nprograms_dir = 's3cret'", "sources.ib_fabric.programs_dir"),
        ("[sources.ib_fabric]\nenabled = true", "sources.ib_fabric.enabled"),
        ("[sources.host]\njob_variables = ['s3cret']", "sources.host.job_variables"),
        ("[sources.dcgm]\nurl = 's3cret'", "sources.dcgm.url"),
        ("[sources.steps]\nsocket = 's3cret'", "sources.steps.socket"),
        ("[sources.nccl_debug]\nfiles = ['s3cret']", "sources.nccl_debug.files"),
    ],
)
def test_what_stays_with_the_host_is_refused_by_its_name_and_without_its_value(
    document: str, key: str
) -> None:
    assert refusal(document) == f"configuration: {key} {STAYS}"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("flush_seconds = ", "not a TOML file"),
        ("flush_second = 1.0", "did you mean 'flush_seconds'?"),
        ("flush_seconds = 0.0", "flush_seconds = 0.0: must be above 0"),
        ("flush_seconds = 'x'", "flush_seconds = 'x'"),
        ("[sources.netdef]\nenabled = true", "did you mean 'netdev'?"),
        ("[sources.netdev]\ninterval_seconds = 0.0", "interval_seconds = 0.0: must be 0.01"),
        ("[sources.netdev]\nenabled = 3", "sources.netdev.enabled = 3"),
        ("sources = 3", "sources must be tables"),
        ("[sources]\nnetdev = 3", "sources.netdev must be a table"),
        ("#" * DOCUMENT_BYTES_MAX + "\n", "DOCUMENT_BYTES_MAX"),
        ("x = " + "[" * 20_000, "not a TOML file"),
    ],
)
def test_a_mistake_is_named(document: str, words: str) -> None:
    assert words in refusal(document)


def test_a_slip_of_the_pen_is_said_to_be_one() -> None:
    words = refusal("[sources.netdev]\nintervall_seconds = 2")
    assert words.endswith("; did you mean interval_seconds?")


def test_what_was_served_wins_over_the_file_and_loses_to_environment_and_flags(
    tmp_path: Path,
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text("flush_seconds = 1.0\nretry_seconds_max = 1.0\nstop_seconds = 1.0\n")
    served = read_document(
        b"flush_seconds = 2.0\nretry_seconds_max = 2.0\nstop_seconds = 2.0\n", "configuration 7"
    )
    found = load_settings(
        TYPES,
        file=file,
        environment={"FABRICSCOPE_AGENT_RETRY_SECONDS_MAX": "3"},
        flags={"stop_seconds": "4"},
        served=served,
    )
    assert (found.flush_seconds, found.retry_seconds_max, found.stop_seconds) == (2.0, 3.0, 4.0)


def test_the_reader_as_a_process_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for document, status, words in ((b"flush_seconds = 2.0", 0, ""), (b"host = 'x'", 1, STAYS)):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(document)))
        assert check.main() == status
        assert capsys.readouterr().out.endswith(words)


def test_a_signature_is_of_one_key_one_version_and_one_document() -> None:
    key, sha256 = b"k" * 32, "ab" * 32
    signature = sign(key, 7, sha256)
    assert is_signed(key, 7, sha256, signature)
    assert not is_signed(key, 8, sha256, signature)
    assert not is_signed(key, 7, "cd" * 32, signature)
    assert not is_signed(b"x" * 32, 7, sha256, signature)
    assert not is_signed(key, 7, sha256, "ü")


def test_a_key_must_be_long_enough(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"k" * 32 + b"\n")
    assert read_key(file) == b"k" * 32
    file.write_bytes(b"short")
    with pytest.raises(SettingsError, match="openssl rand"):
        read_key(file)
    with pytest.raises(SettingsError, match="No such file"):
        read_key(tmp_path / "none")
