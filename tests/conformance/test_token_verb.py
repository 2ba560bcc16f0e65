"""`fabricscope token`, and a service behind TLS that takes the tokens which the verb makes."""

import json
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from collector.agent.ship import make_client
from collector.cli import main
from tests.doubles.gnmi_server import make_certificates
from tests.stands.ports import free_port
from tests.stands.service import READY_SECONDS, eventually, launch


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def token(data: Path, *words: str) -> int:
    """`fabricscope token WORDS` on this data folder."""
    return main(["token", *words, "--data", str(data)])


def test_create_prints_the_secret_once_and_list_never(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert token(data, "create", "agents", "--scope", "ingest", "--days", "30") == 0
    out, err = capsys.readouterr()
    secret = out.strip()
    assert out == f"{secret}\n"
    assert secret.startswith("fsc_")
    number = secret.split("_")[1]
    assert f"token {number} (agents): ingest; ends 20" in err
    assert secret not in err
    assert token(data, "list") == 0
    listed = capsys.readouterr().out
    assert listed.splitlines()[0].split() == [
        *("ID", "NAME", "SCOPES", "HOSTS", "CREATED", "LAST", "USED", "STATE")
    ]
    assert number in listed
    assert "until 20" in listed
    assert token(data, "list", "--json") == 0
    as_json = capsys.readouterr().out
    assert [(row["id"], row["scopes"]) for row in json.loads(as_json)] == [(number, ["ingest"])]
    for text in (listed, as_json):
        assert secret.split("_", 2)[2] not in text
    assert token(data, "revoke", number) == 0
    assert "is revoked: services know it within 2 seconds" in capsys.readouterr().out
    assert token(data, "list") == 0
    assert "revoked 20" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["create", "x", "--scope", "read", "--days", "0"], "--days is 0; more than 0"),
        (["create", "x", "--scope", "read", "--days", "nan"], "--days is nan"),
        (
            ["create", "x", "--scope", "read", "--requests-per-second", "-1"],
            "--requests-per-second is -1",
        ),
        (["create", "", "--scope", "read"], "a token's name has 1 to 100 characters"),
        (["revoke", "nobody"], "no token that is not revoked has the id 'nobody'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    data: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert token(data, "create", "another", "--scope", "read") == 0
    capsys.readouterr()
    assert token(data, *words) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize("refused", ["data", "data/inventory.db"])
@pytest.mark.parametrize("words", [["create", "x", "--scope", "read"], ["list"], ["revoke", "x"]])
def test_where_nothing_may_be_written_is_named_with_what_to_do(
    refused: str,
    words: list[str],
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SQLite says "unable to open database file", or that a database is read-only."""
    assert token(data, "create", "another", "--scope", "read") == 0
    capsys.readouterr()
    place = data.parent / refused
    monkeypatch.setattr(os, "access", lambda asked, *_, **__: Path(asked) != place)
    assert token(data, *words) == 2
    assert capsys.readouterr().err == (
        f"fabricscope: {place} cannot be written by this user; run this as the service's user, or "
        "name another place with --data\n"
    )


def test_the_folder_of_an_inventory_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/nowhere/inventory.db"
    assert main(["token", "create", "x", "--scope", "read", "--inventory", url]) == 2
    assert f"there is no folder {tmp_path}/nowhere; make it" in capsys.readouterr().err


def test_a_scope_that_does_not_exist_is_named(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert token(data, "create", "x", "--scope", "red") == 2
    assert "--scope: unknown value 'red'; did you mean 'read'?" in capsys.readouterr().err


# --- with a service -----------------------------------------------------------------------------


class Pair:
    """A certificate for localhost and its key, in files that can be replaced."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.ca_file = Path()
        self._folder = folder

    def renew(self) -> None:
        made = make_certificates(self._folder, "localhost")
        self.ca_file = made.ca_file
        self.certificate.write_bytes(made.cert)
        self.key.write_bytes(made.key)

    @property
    def der(self) -> bytes:
        return ssl.PEM_cert_to_DER_cert(self.certificate.read_text())


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    pair = Pair(tmp_path)
    pair.renew()
    return pair


@pytest.fixture
def secured(data: Path, pair: Pair, tmp_path: Path) -> Iterator[int]:
    """The port of a service that asks for tokens and speaks TLS; it was given one token before."""
    port = free_port()
    config = tmp_path / "service.toml"
    config.write_text(
        f'data = "{data}"\nlisten = "127.0.0.1:{port}"\nrequire_tokens = true\n'
        f'tls_certificate = "{pair.certificate}"\ntls_key = "{pair.key}"\n'
        "rules_pack = false\nown_numbers = false\n"
    )
    log = tmp_path / "log"
    process = launch(["serve", "--config", str(config)], log)

    def listens() -> bool:
        assert process.poll() is None, log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(listens, f"port {port}; its log: {log}")
        yield port
    finally:
        process.terminate()
        process.wait(READY_SECONDS)


def shown_by(port: int) -> bytes:
    """The certificate that the service shows to a new connection."""
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port)))


@pytest.fixture
def first(data: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A token that was made before the service first ran."""
    assert token(data, "create", "first", "--scope", "read") == 0
    return capsys.readouterr().out.strip()


@pytest.mark.slow
def test_over_tls_with_tokens_that_come_and_go(
    first: str, secured: int, pair: Pair, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"https://localhost:{secured}"

    def status(secret: str) -> int:
        headers = {"Authorization": f"Bearer {secret}"}
        return client.get("/v1/hosts", headers=headers).status_code

    # The agent's own client, as its settings ca_file and token_file make it.
    with make_client(url, str(pair.ca_file)) as client:
        assert client.get("/readyz").status_code == 200
        assert client.get("/v1/hosts").status_code == 401
        assert status(first) == 200
        assert token(data, "create", "second", "--scope", "ingest") == 0
        second = capsys.readouterr().out.strip()
        eventually(lambda: status(second) == 403, "the new token is known, and may not read")
        assert token(data, "revoke", first.split("_")[1]) == 0
        eventually(lambda: status(first) == 401, "401 for the revoked token")
    with make_client(url, "") as stranger, pytest.raises(httpx.ConnectError, match="CERTIFICATE"):
        stranger.get("/healthz")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://localhost:{secured}/healthz")
    old = pair.der
    assert shown_by(secured) == old
    pair.key.write_text("half of a new pair")
    pair.renew()
    eventually(lambda: shown_by(secured) == pair.der != old, "the new certificate is shown")
    with make_client(url, str(pair.ca_file)) as client:
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["revoke", "abc"]])
def test_a_folder_without_a_service_stays_as_it_is(
    data: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert token(data, *words) == 2
    said = capsys.readouterr().err
    assert f"no inventory at {data / 'inventory.db'}" in said
    assert "--data" in said
    assert not data.exists()


def test_an_address_in_use_is_told_before_anything_is_made(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["serve", "--data", str(data), "--listen", listen]) == 2
    out, err = capsys.readouterr()
    assert f"cannot listen on {listen}: the address is in use" in err
    assert "serves on" not in out + err
    assert not data.exists()


@pytest.mark.parametrize("words", [["--listen", "0.0.0.0:0"], ["--workers", "2"]])
def test_a_service_that_nobody_could_ask_makes_nothing(
    data: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    config = data.with_suffix(".toml")
    config.write_text("require_tokens = true\n")
    assert main(["serve", "--data", str(data), "--config", str(config), *words]) == 2
    assert "and there is no token: make one (fabricscope token create" in capsys.readouterr().err
    assert not data.exists()


def test_an_address_that_is_no_store_makes_nothing(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["serve", "--data", str(data), "--store", "foo://x", "--listen", "127.0.0.1:0"]) == 2
    )
    assert "store 'foo://x': write chdb:///path or clickhouse" in capsys.readouterr().err
    assert not data.exists()


def test_a_data_folder_that_is_a_file_is_told(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data.write_text("")
    assert main(["serve", "--data", str(data), "--listen", "127.0.0.1:0"]) == 2
    assert f"data folder {data}: a file stands there; name a folder" in capsys.readouterr().err
