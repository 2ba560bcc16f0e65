"""An HTTP client of our own service: JSON, within the bounds of `connection`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from collector.contract.errors import FabricscopeError
from dashboards.grafana.connection import check_url, fetch, open_client, why_unanswered
from dashboards.grafana.failures import UNAUTHORISED, plain


class ServiceError(FabricscopeError):
    """The service did not give what was asked of it."""


class Service:
    """One Fabricscope service."""

    def __init__(self, url: str, token: str = "", ca_file: str = "") -> None:
        self.url = check_url(url, "--service")
        self._secrets = [token]
        self._client = open_client(self.url, token, ca_file)

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, words: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
        import httpx  # noqa: PLC0415 - only where it is installed

        address = f"{self.url}{path}"
        try:
            answer = fetch(self._client, "GET", address, params=words)
        except (OSError, httpx.HTTPError, httpx.InvalidURL) as error:
            raise ServiceError(f"{address}: {why_unanswered(error, self._secrets)}") from error
        if not answer.is_success:
            status = answer.status_code
            hint = "; give --service-token-file" if status == UNAUTHORISED else ""
            raise ServiceError(f"{address}: {status} ({plain(answer.text, self._secrets)}){hint}")
        try:
            return msgspec.json.decode(answer.content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ServiceError(f"{address}: no JSON; is this Fabricscope?") from error
