"""The tokens of inventory and token file, read again every `TOKENS_FRESH_SECONDS`."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from api.base.edited import Stamp, is_being_written, stamp_of
from api.base.host_names import Hosts
from api.base.limits import TOKEN_USED_SECONDS, TOKENS_FRESH_SECONDS, TOKENS_MAX
from api.base.passes import Passes, is_pass
from api.base.steady import Steady
from api.data.inventory.token_model import Token
from api.data.inventory.tokens import TokenTables
from api.http.tokens.file import read_token_file
from api.http.tokens.model import Caller, Denial, DenialReason, denied, digest_of, id_in, is_same
from api.http.tokens.rate import Bucket
from api.http.tokens.scopes import allowed_by
from collector.contract.errors import InventoryError, SettingsError

log = logging.getLogger(__name__)

UNKNOWN = Denial(
    401,
    DenialReason.UNKNOWN_TOKEN,
    "this token is none of the service's: fabricscope token list shows those there are",
)
UNKNOWN_LINK = Denial(
    401,
    DenialReason.UNKNOWN_TOKEN,
    "this link is no notice's of this service: open the incident with a token",
)


hosts_of = lru_cache(2 * TOKENS_MAX)(Hosts.of)


class TokenBook:
    """The valid tokens. ``clock``: unix seconds; `look` may run in any thread, `find` in one."""

    def __init__(
        self,
        tokens: TokenTables,
        clock: Callable[[], float],
        *,
        file: str = "",
        passes: Passes | None = None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = tokens
        self._passes = passes
        self._clock = clock
        self._ticks = ticks
        self._file = Path(file) if file else None
        self._of_file: tuple[Token, ...] = ()
        self._stamp: Stamp | None = None
        """Of the token file, as it was when it was last read."""
        self._kept: dict[str, Token] = {}
        self._buckets: dict[str, Bucket] = {}
        self._used: dict[str, dt.datetime] = {}
        self._trouble = ""

    def load(self) -> None:
        """Read everything; raises SettingsError or InventoryError if something cannot be read."""
        self._load_file()
        self._take(self._tokens.all())

    def _load_file(self) -> None:
        """Half a file denies the tokens of the other half, so one that is being written waits."""
        if self._file is None:
            return
        stamp = stamp_of(self._file)
        is_known = self._stamp is not None and stamp is not None
        if is_known and (stamp == self._stamp or is_being_written(stamp)):
            return
        self._of_file = read_token_file(self._file)
        self._stamp = stamp

    def is_empty(self) -> bool:
        now = self._now()
        return not self._of_file and not any(token.stands(now) for token in self._kept.values())

    async def run(self, steady: Steady) -> None:
        while True:
            await asyncio.sleep(TOKENS_FRESH_SECONDS)
            with steady.round():
                await asyncio.to_thread(self.look)

    def look(self) -> None:
        """What cannot be read now stays as it was, and is logged once."""
        trouble = ""
        for step in (self.load, self._note_used):
            try:
                step()
            except (SettingsError, InventoryError) as error:
                trouble = trouble or str(error)
        if trouble and not self._trouble:
            log.warning("tokens stay as they were last known: %s", trouble)
        self._trouble = trouble

    def find(self, text: str) -> Caller | Denial:
        """The caller with this token, or why the token is denied. Records its use."""
        if is_pass(text):
            return self._find_pass(text)
        digest = digest_of(text)
        # Every token of the file is compared: the time reveals nothing about them.
        same = [token for token in self._of_file if is_same(token, digest)]
        kept = self._kept.get(id_in(text))
        if kept is not None and is_same(kept, digest):
            same.append(kept)
        if not same:
            return UNKNOWN
        token, now = same[0], self._now()
        if (denial := denied(token, now)) is not None:
            return denial
        if token is kept:
            self._note(token, now)
        if not self._has_turn(token):
            rate = f"{token.requests_per_second:g} requests a second"
            words = f"token {token.name!r} ({token.id}) is limited to {rate}"
            return Denial(429, DenialReason.TOKEN_RATE, words)
        return Caller(token.name, allowed_by(token.scopes), hosts_of(token.hosts))

    def _find_pass(self, text: str) -> Caller | Denial:
        found = None if self._passes is None else self._passes.read(text)
        if found is None:
            return UNKNOWN_LINK
        if found.until_s <= self._clock():
            ended = dt.datetime.fromtimestamp(found.until_s, tz=dt.UTC)
            words = f"the notice's link to incident {found.incident} expired at {ended:%FT%TZ}"
            return Denial(401, DenialReason.TOKEN_EXPIRED, words)
        return Caller("a notice's link", frozenset(), incident=found.incident)

    def _now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._clock(), tz=dt.UTC)

    def _take(self, tokens: list[Token]) -> None:
        """Replace the tokens; one with an unchanged rate keeps its bucket."""
        now_s = self._ticks()
        buckets = {}
        for token in tokens:
            if (rate := token.requests_per_second) is not None:
                had = self._buckets.get(token.id)
                is_same_rate = had is not None and had.per_second == rate
                buckets[token.id] = had if had and is_same_rate else Bucket(rate, now_s)
        self._buckets, self._kept = buckets, {token.id: token for token in tokens}

    def _has_turn(self, token: Token) -> bool:
        bucket = self._buckets.get(token.id)
        return bucket is None or bucket.take(self._ticks())

    def _note(self, token: Token, now: dt.datetime) -> None:
        """Record that a token was used, to a multiple of TOKEN_USED_SECONDS."""
        seconds = int(now.timestamp()) // TOKEN_USED_SECONDS * TOKEN_USED_SECONDS
        known = self._used.get(token.id) or token.used_at
        if known is None or known.timestamp() < seconds:
            self._used[token.id] = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)

    def _note_used(self) -> None:
        used = {
            number: moment
            for number, moment in list(self._used.items())
            if (token := self._kept.get(number)) is not None
            and (token.used_at is None or token.used_at < moment)
        }
        if used:
            self._tokens.note_used(used)
        # Written uses come back with the next look; those of unknown tokens are forgotten.
        for number in set(self._used) - set(used):
            self._used.pop(number, None)
