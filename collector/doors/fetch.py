"""The page of another program on this host or near it, by HTTP GET. Used by `Host` alone."""

from __future__ import annotations

import ssl
import threading
import time
from typing import NamedTuple

import httpx

from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason

ANSWER_BYTES_MAX = 16 << 20
"""An exporter of 16 GPUs with every field of every NVLink writes about 4 MB."""


class Access(NamedTuple):
    """What a page wants before it answers, and whom we believe that it is the page."""

    authorization: str = ""
    """The header's whole text; sent over https alone."""
    ca_file: str = ""
    """Certificates to trust in place of the system's."""


OPEN = Access()


class Fetcher:
    """Keeps connections between reads. May be used by several threads at once."""

    def __init__(self) -> None:
        self._clients: dict[str, httpx.Client] = {}
        """By the file of certificates: as many as the settings of one agent name."""
        self._lock = threading.Lock()

    def fetch(self, url: str, seconds: float, access: Access = OPEN) -> bytes:
        """The body of the answer; HostError unless it is a whole 200 within time and size.

        Redirects are not followed: a page that moved is a setting to correct, and a redirect to
        another host would send this agent's requests to a host that no setting names.
        """
        deadline = time.monotonic() + seconds
        body = bytearray()
        if access.authorization and not url.lower().startswith("https://"):
            raise refuse(url, "a token is sent over https:// only")
        headers = {"Authorization": access.authorization} if access.authorization else {}
        client = self._client_for(url, access.ca_file)
        try:
            with client.stream("GET", url, timeout=seconds, headers=headers) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise refuse(url, explain_status(answer))
                for piece in answer.iter_raw():
                    body += piece
                    if len(body) > ANSWER_BYTES_MAX:
                        raise refuse(url, f"over ANSWER_BYTES_MAX = {ANSWER_BYTES_MAX} bytes")
                    if time.monotonic() > deadline:
                        detail = f"not done after {seconds:g} s"
                        raise HostError(UnreadReason.TIMEOUT, url, detail)
        except httpx.TimeoutException as error:
            raise HostError(UnreadReason.TIMEOUT, url, f"no answer within {seconds:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise refuse(url, f"{type(error).__name__}: {error}") from error
        return bytes(body)

    def close(self) -> None:
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def _client_for(self, url: str, ca_file: str) -> httpx.Client:
        if not url.lower().startswith(("http://", "https://")):
            raise refuse(url, "only http:// and https:// can be fetched")
        with self._lock:
            if ca_file not in self._clients:
                try:
                    verify = ssl.create_default_context(cafile=ca_file) if ca_file else True
                except OSError as error:
                    raise refuse(ca_file, f"no certificates to trust: {error}") from error
                # Proxies of the environment are for people's downloads, not for the host's own
                # pages; and a compressed answer could unpack to any size.
                self._clients[ca_file] = httpx.Client(
                    verify=verify,
                    trust_env=False,
                    follow_redirects=False,
                    headers={"Accept-Encoding": "identity", "User-Agent": "fabricscope"},
                )
            return self._clients[ca_file]


def refuse(url: str, detail: str) -> HostError:
    return HostError(UnreadReason.UNREADABLE, url, detail)


def explain_status(answer: httpx.Response) -> str:
    if answer.is_redirect:
        target = answer.headers.get("location", "")[:200]
        return f"status {answer.status_code}: it has moved to {target!r}; set that address instead"
    return f"status {answer.status_code}"
