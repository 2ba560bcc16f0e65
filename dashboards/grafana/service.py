"""Asks our own service for JSON with the standard library: bounded in time and size.

Not with httpx: whoever pushes dashboards has grafana-client installed, and of the service nothing.
"""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from typing import IO, Any
from urllib.parse import urlencode

import msgspec

from collector.contract.errors import FabricscopeError, SettingsError
from dashboards.grafana.connection import check_url
from dashboards.grafana.failures import plain

ANSWER_SECONDS_MAX = 20.0
"""For one answer: the service answers within its own query time-out."""
ANSWER_BYTES_MAX = 16 << 20
"""Of one answer: a page of a thousand incidents has about 1 MB."""

_PIECE_BYTES = 1 << 16


class ServiceError(FabricscopeError):
    """The service did not give what was asked of it."""


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token would travel with it."""

    def redirect_request(
        self,
        req: urllib.request.Request,  # noqa: ARG002
        fp: IO[bytes],  # noqa: ARG002
        code: int,  # noqa: ARG002
        msg: str,  # noqa: ARG002
        headers: Message,  # noqa: ARG002
        newurl: str,  # noqa: ARG002
    ) -> None:
        """No."""
        return


class Service:
    """One Fabricscope service."""

    def __init__(self, url: str, token: str = "", ca_file: str = "") -> None:
        self.url = check_url(url, "--service")
        self._headers = {"Accept": "application/json", "User-Agent": "fabricscope"}
        self._secrets = [token]
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        try:
            trusted = ssl.create_default_context(cafile=ca_file or None)
        except OSError as error:
            raise SettingsError(f"--ca-file {ca_file}: {error.strerror or error}") from error
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=trusted), _Stay
        )

    def get(self, path: str, words: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
        """The answer to a question; ServiceError if there is none."""
        address = f"{self.url}{path}?{urlencode(words)}"
        request = urllib.request.Request(address, headers=self._headers)  # noqa: S310 - checked
        try:
            with self._opener.open(request, timeout=ANSWER_SECONDS_MAX) as answer:
                return msgspec.json.decode(self._read(answer))
        except urllib.error.HTTPError as error:
            said = plain(error.read(_PIECE_BYTES).decode("utf-8", "replace"), self._secrets)
            hint = "; give --service-token-file" if error.code == 401 else ""  # noqa: PLR2004
            raise ServiceError(f"{self.url}{path}: {error.code} ({said}){hint}") from error
        except msgspec.DecodeError as error:
            raise ServiceError(f"{self.url}{path}: no JSON; is this Fabricscope?") from error
        except OSError as error:
            said = plain(str(getattr(error, "reason", error)), self._secrets)
            raise ServiceError(f"{self.url}{path}: {said}") from error

    def _read(self, answer: IO[bytes]) -> bytes:
        """All of an answer, within its bounds."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        body = bytearray()
        while piece := answer.read(_PIECE_BYTES):
            body += piece
            if len(body) > ANSWER_BYTES_MAX:
                raise ServiceError(f"{self.url}: an answer over {ANSWER_BYTES_MAX >> 20} MiB")
            if time.monotonic() > deadline:
                raise ServiceError(f"{self.url}: no whole answer in {ANSWER_SECONDS_MAX:g} s")
        return bytes(body)
