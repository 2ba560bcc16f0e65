"""The service's certificate: checked before anything is opened, reloaded when it changes."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import NoReturn

from api.base.edited import Stamp, is_being_written, stamp_of
from collector.contract.errors import SettingsError

log = logging.getLogger(__name__)


class Certificate:
    """A certificate chain and its key, both PEM files, and which versions were last loaded."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = Path(certificate)
        self._key = Path(key)
        self._stamps = self._look()

    def check(self) -> None:
        """Raise SettingsError, which names the file, unless both can be read and fit together."""
        self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def refresh(self, context: ssl.SSLContext) -> None:
        """Load changed files into a context in use: new connections use them.

        While a file is being written (half a chain is a chain) or the two do not fit together (one
        is written already) the old pair stays; they are tried again at the next look or change.
        """
        stamps = self._look()
        if stamps == self._stamps or any(map(is_being_written, stamps)):
            return
        self._stamps = stamps
        try:
            # A context that loads half of a pair is of no use any more: try it on another one.
            self.check()
            self._load(context)
        except SettingsError as error:
            log.warning("the certificate stays as it was: %s", error)
        else:
            log.info("took the new certificate of %s", self._certificate)

    def _look(self) -> tuple[Stamp | None, Stamp | None]:
        return stamp_of(self._certificate), stamp_of(self._key)

    def _load(self, context: ssl.SSLContext) -> None:
        for name, file in (("tls_certificate", self._certificate), ("tls_key", self._key)):
            try:
                file.open("rb").close()
            except OSError as error:
                raise SettingsError(f"{name} {file}: {error.strerror}") from error
        pair = f"tls_certificate {self._certificate} with tls_key {self._key}"
        try:
            context.load_cert_chain(self._certificate, self._key, password=no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise SettingsError(f"{pair}: {error}") from error


def no_password() -> NoReturn:
    """A key under a password would make OpenSSL ask the terminal, which a service has not."""
    raise ValueError("the key is encrypted; the service needs one without a password")
