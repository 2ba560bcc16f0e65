"""The page of another program on this host or near it, by HTTP GET. Used by `Host` alone."""

from __future__ import annotations

import threading
import time

import httpx

from collector.contract.errors import HostError
from collector.contract.reason import UnreadReason

ANSWER_BYTES_MAX = 16 << 20
"""An exporter of 16 GPUs with every field of every NVLink writes about 4 MB."""


class Fetcher:
    """Keeps connections between reads. May be used by several threads at once."""

    def __init__(self) -> None:
        self._client: httpx.Client | None = None
        self._lock = threading.Lock()

    def fetch(self, url: str, seconds: float) -> bytes:
        """The body of the answer; HostError unless it is a whole 200 within time and size.

        Redirects are not followed: a page that moved is a setting to correct, and a redirect to
        another host would send this agent's requests to a host that no setting names.
        """
        deadline = time.monotonic() + seconds
        body = bytearray()
        try:
            with self._client_for(url).stream("GET", url, timeout=seconds) as answer:
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
            if self._client is not None:
                self._client.close()
                self._client = None

    def _client_for(self, url: str) -> httpx.Client:
        if not url.lower().startswith(("http://", "https://")):
            raise refuse(url, "only http:// and https:// can be fetched")
        with self._lock:
            if self._client is None:
                # Proxies of the environment are for people's downloads, not for the host's own
                # pages; and a compressed answer could unpack to any size.
                self._client = httpx.Client(
                    trust_env=False,
                    follow_redirects=False,
                    headers={"Accept-Encoding": "identity", "User-Agent": "fabricscope"},
                )
            return self._client


def refuse(url: str, detail: str) -> HostError:
    return HostError(UnreadReason.UNREADABLE, url, detail)


def explain_status(answer: httpx.Response) -> str:
    if answer.is_redirect:
        target = answer.headers.get("location", "")[:200]
        return f"status {answer.status_code}: it has moved to {target!r}; set that address instead"
    return f"status {answer.status_code}"
