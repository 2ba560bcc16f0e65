"""The service's certificate: checked before anything is opened, reloaded when it changes."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import NoReturn

from collector.contract.errors import SettingsError

log = logging.getLogger(__name__)

Mark = tuple[tuple[int, int, int], ...]
"""Changes when a file is replaced or written: device, inode and time of each."""


class Certificate:
    """A certificate chain and its key, both PEM files, and which versions were last loaded."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = Path(certificate)
        self._key = Path(key)
        self._mark = self._look()

    def check(self) -> None:
        """Raise SettingsError, which names the file, unless both can be read and fit together."""
        self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def refresh(self, context: ssl.SSLContext) -> None:
        """Load changed files into a context in use: new connections use them.

        While the files do not fit together (one of two is written already) the old pair stays; they
        are tried again at the next change.
        """
        mark = self._look()
        if mark == self._mark:
            return
        self._mark = mark
        try:
            # A context that loads half of a pair is of no use any more: try it on another one.
            self.check()
            self._load(context)
        except SettingsError as error:
            log.warning("the certificate stays as it was: %s", error)
        else:
            log.info("took the new certificate of %s", self._certificate)

    def _look(self) -> Mark | None:
        try:
            looks = [file.stat() for file in (self._certificate, self._key)]
        except OSError:
            return None
        return tuple((look.st_dev, look.st_ino, look.st_mtime_ns) for look in looks)

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
