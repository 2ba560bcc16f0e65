"""The service's certificate: what does not fit is named, what is half-written is not taken."""

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from api.base.edited import SETTLED_SECONDS
from api.http.serving import certificate_of
from api.http.settings import ServiceSettings, load_service_settings
from api.http.tls import Certificate
from collector.contract.errors import SettingsError
from tests.doubles.gnmi_server import make_certificates
from tests.stands.edited import write_aged


class Files:
    """A certificate and a key in a folder."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self._folder = folder

    def write(self, age_s: float = 60.0) -> None:
        """A new pair, last changed so long ago."""
        made = make_certificates(self._folder, "localhost")
        write_aged(self.certificate, made.cert, age_s)
        write_aged(self.key, made.key, age_s)

    def load(self) -> None:
        flags = {"tls_certificate": str(self.certificate), "tls_key": str(self.key)}
        load_service_settings(None, flags, {})


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(tmp_path)
    files.write()
    return files


def test_a_pair_that_fits_is_taken(files: Files) -> None:
    files.load()


def test_what_is_missing_or_does_not_fit_is_named(files: Files) -> None:
    key = files.key.read_bytes()
    files.write()
    files.key.write_bytes(key)
    with pytest.raises(SettingsError, match=r"tls\.crt with tls_key .*tls\.key: .*MISMATCH"):
        files.load()
    files.key.unlink()
    with pytest.raises(SettingsError, match=r"tls_key .*tls\.key: No such file"):
        files.load()
    files.write()
    files.certificate.write_text("no certificate")
    with pytest.raises(SettingsError, match=r"tls_certificate .*tls\.crt"):
        files.load()
    files.certificate.unlink()
    with pytest.raises(SettingsError, match=r"tls_certificate .*tls\.crt: No such file"):
        files.load()


def test_a_key_under_a_password_is_refused_and_nobody_is_asked_for_it(files: Files) -> None:
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"x"),
        )
    )
    with pytest.raises(SettingsError, match="the key is encrypted"):
        files.load()


class Taken(ssl.SSLContext):
    """A context that notes what was loaded into it."""

    loads = 0

    def load_cert_chain(self, *words: object, **named: object) -> None:
        self.loads += 1
        super().load_cert_chain(*words, **named)  # type: ignore[arg-type]


def test_only_a_change_that_fits_is_taken(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    certificate = Certificate(str(files.certificate), str(files.key))
    context = Taken(ssl.PROTOCOL_TLS_SERVER)
    certificate.refresh(context)
    assert context.loads == 0, "nothing has changed"
    write_aged(files.key, "half", SETTLED_SECONDS + 1)
    certificate.refresh(context)
    certificate.refresh(context)
    assert context.loads == 0
    assert len([line for line in caplog.messages if "stays as it was" in line]) == 1
    files.write(age_s=0.0)
    certificate.refresh(context)
    assert context.loads == 0, "half a chain is a chain"
    files.write(SETTLED_SECONDS + 1)
    certificate.refresh(context)
    assert context.loads == 1
    files.key.unlink()
    certificate.refresh(context)
    assert context.loads == 1


def test_whoever_goes_without_where_others_listen_is_told(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    assert certificate_of(ServiceSettings()) is None
    assert caplog.messages == []
    assert certificate_of(ServiceSettings(listen="10.0.0.1:9700")) is None
    assert "no TLS on 10.0.0.1:9700: tokens can be read on the way" in caplog.text
    caplog.clear()
    secured = ServiceSettings(
        listen="10.0.0.1:9700",
        tls_certificate=str(files.certificate),
        tls_key=str(files.key),
    )
    assert certificate_of(secured) is not None
    assert caplog.messages == []
