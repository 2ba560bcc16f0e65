"""One writer at a time: a Lease of Kubernetes, held and renewed.

The rules are those of client-go's leader election. Clocks of hosts are not compared: a lease is
over when *we* have not seen it change for as long as its holder asked for. And we hold it only as
long as we have renewed it within RENEWED_SECONDS, which is less: when the API server is
unavailable, we stop writing before another process may begin.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import secrets
import socket
import time
from collections.abc import Callable

from api.remote.kubernetes.client import Cluster
from api.remote.kubernetes.errors import ClusterError, ObjectChanged, ObjectMissing
from api.remote.kubernetes.objects import Lease, LeaseSpec

LEASE_SECONDS = 15
"""A holder that is not heard of for so long has lost it."""
RENEWED_SECONDS = 10.0
"""We take it as lost if we could not renew it for so long."""
RETRY_SECONDS = 2.0
"""How often we look, or renew."""
RELEASE_SECONDS = 2.0
"""How long a program that ends tries to give it back."""

log = logging.getLogger(__name__)


def make_identity() -> str:
    """A name that no other writer has, nor this one before a restart."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


class Leadership:
    """Holds a lease, or waits for it. ``monotonic``: seconds; ``clock``: unix seconds."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        identity: str,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster = cluster
        self._name = name
        self.identity = identity
        self._monotonic = monotonic
        self._clock = clock
        self._renewed_s = float("-inf")
        self._seen: tuple[str, float] | None = None
        """The version of another holder's lease, and when we first saw it."""
        self.why = "the API server was not asked yet"
        self.news = asyncio.Event()
        """Set when we get it."""

    def is_held(self) -> bool:
        return self._monotonic() - self._renewed_s < RENEWED_SECONDS

    async def run(self) -> None:
        was_held = False
        try:
            while True:
                await self.step()
                if self.is_held() != was_held:
                    was_held = not was_held
                    log.info("we write now" if was_held else f"we no longer write: {self.why}")
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            await self.release()

    async def step(self) -> bool:
        """Take or renew it, if possible; whether we hold it now."""
        began_s = self._monotonic()
        try:
            # A renewal that takes longer than the lease is useless.
            async with asyncio.timeout(RENEWED_SECONDS):
                is_ours = await self._try()
        except ObjectChanged:
            self.why = f"another process took lease {self._name} at the same moment"
        except TimeoutError:
            self.why = f"lease {self._name}: no answer within {RENEWED_SECONDS:.0f} s"
        except ClusterError as error:
            self.why = str(error)
        else:
            if is_ours:
                if not self.is_held():
                    self.news.set()
                # From the time of the request, not of the answer.
                self._renewed_s, self.why = began_s, ""
            else:
                self._renewed_s = float("-inf")
        return self.is_held()

    async def _try(self) -> bool:
        try:
            lease = await self._cluster.get_lease(self._name)
        except ObjectMissing:
            await self._cluster.create_lease(self._name, self._spec(None))
            return True
        holder = lease.spec.holder_identity or ""
        if holder not in ("", self.identity) and not self._is_over(lease):
            self.why = f"lease {self._name} is held by {holder!r}"
            return False
        await self._cluster.replace_lease(lease, self._spec(lease))
        return True

    def _is_over(self, lease: Lease) -> bool:
        """Whether a lease has not changed for as long as its holder asked for."""
        version, now_s = lease.metadata.resource_version, self._monotonic()
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now_s)
        return now_s - self._seen[1] >= (lease.spec.lease_duration_seconds or LEASE_SECONDS)

    def _spec(self, before: Lease | None) -> LeaseSpec:
        now = micro_time(self._clock())
        spec = before.spec if before is not None else LeaseSpec()
        is_renewal = spec.holder_identity == self.identity
        turns = spec.lease_transitions or 0
        return LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=LEASE_SECONDS,
            acquire_time=spec.acquire_time if is_renewal else now,
            renew_time=now,
            lease_transitions=turns + (0 if is_renewal or before is None else 1),
        )

    async def release(self) -> None:
        """Release it, so that another process need not wait; ignores failures."""
        if not self.is_held():
            return
        self._renewed_s = float("-inf")
        with contextlib.suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                lease = await self._cluster.get_lease(self._name)
                if lease.spec.holder_identity == self.identity:
                    spec = self._spec(lease)
                    # As client-go does: an empty holder, whose lease is over in a second.
                    spec.holder_identity, spec.lease_duration_seconds = "", 1
                    await self._cluster.replace_lease(lease, spec)


def micro_time(unix_s: float) -> str:
    """A moment as Kubernetes' `MicroTime`.

    >>> micro_time(1794806673.5)
    '2026-11-16T05:24:33.500000Z'
    """
    return f"{dt.datetime.fromtimestamp(unix_s, tz=dt.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
