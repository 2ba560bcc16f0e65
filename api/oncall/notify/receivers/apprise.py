"""E-mail (`mailto://`) and every other service that Apprise supports.

Apprise is imported when the first notice is sent, and it blocks: it has a thread of its own. It
gives every mail a new Message-ID; ours is in the header `X-Fabricscope-Notice` and in the text.
"""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

from alerts.rulebook.notices import Notice, Status
from api.oncall.notify.http import Delivery, Outcome, quieten, strike
from api.oncall.notify.message import plain_text, say
from api.oncall.notify.receivers import Means, Receiver
from api.oncall.notify.table import ReceiverTable, secret_of
from collector.contract.errors import SettingsError

NOTICE_HEADER = "X-Fabricscope-Notice"
MAIL_SCHEMES = ("mailto://", "mailtos://")
"""Those of which Apprise takes headers (`+NAME=VALUE`)."""


class AppriseReceiver(Receiver):
    """Hands notices to Apprise, which answers yes or no, and rarely why."""

    name = "apprise"

    def __init__(self, table: ReceiverTable, means: Means) -> None:
        super().__init__(table, means)
        # One thread a receiver: one that hangs must not take the threads of the others.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"apprise-{table.name}")
        self._is_busy = False

    async def send(self, notice: Notice) -> Outcome:
        """A send that takes too long goes on in its thread, and the next attempt waits."""
        try:
            url = secret_of(self._table, "url", f"receiver {self._table.name}")
        except SettingsError as error:
            return Outcome(delivery=Delivery.RETRY, detail=str(error))
        if self._is_busy:
            return Outcome(delivery=Delivery.RETRY, detail="the attempt before has not ended yet")
        self._is_busy = True
        call = functools.partial(self._notify, url, notice)
        future = asyncio.get_running_loop().run_in_executor(self._thread, call)
        future.add_done_callback(self._freed)
        done, _ = await asyncio.wait({future}, timeout=self._table.timeout_s)
        if not done:
            detail = f"no answer within {self._table.timeout_s:g} s"
            return Outcome(delivery=Delivery.RETRY, detail=detail)
        if (broken := future.exception()) is not None:
            # Apprise has a hundred plug-ins: a bug in one must not end the service.
            detail = strike(f"{type(broken).__name__}: {broken}", [url])
            return Outcome(delivery=Delivery.RETRY, detail=detail)
        return future.result()

    def _freed(self, _: object) -> None:
        self._is_busy = False

    def _notify(self, url: str, notice: Notice) -> Outcome:
        try:
            import apprise  # noqa: PLC0415 - heavy, and only for those who use it
        except ImportError:
            detail = "the package apprise is missing: pip install 'fabricscope[server]'"
            return Outcome(delivery=Delivery.RETRY, detail=detail)
        quieten()
        library: Any = apprise
        sender = library.Apprise()
        if not sender.add(with_header(url, notice.id)):
            return Outcome(delivery=Delivery.RETRY, detail="Apprise does not know such an address")
        resolved = notice.status is Status.RESOLVED
        done = sender.notify(
            body=plain_text(notice, self._means.external_url, self._means.page_of(notice)),
            title=say(notice, self._means.external_url).title,
            notify_type=library.NotifyType.SUCCESS if resolved else library.NotifyType.FAILURE,
            body_format=library.NotifyFormat.TEXT,
        )
        if not done:
            return Outcome(delivery=Delivery.RETRY, detail="Apprise could not deliver it")
        return Outcome(delivery=Delivery.SENT)


def with_header(url: str, notice_id: str) -> str:
    """The address with the notice's id as a header, for protocols with headers.

    >>> with_header("mailto://mx.example?to=a", "12"), with_header("ntfy://topic", "12")
    ('mailto://mx.example?to=a&%2BX-Fabricscope-Notice=12', 'ntfy://topic')
    """
    if not url.startswith(MAIL_SCHEMES):
        return url
    mark = "&" if "?" in url else "?"
    return f"{url}{mark}{quote('+')}{NOTICE_HEADER}={notice_id}"


RECEIVER = AppriseReceiver
