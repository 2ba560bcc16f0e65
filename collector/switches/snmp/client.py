"""Asks real switches: SNMPv2c and SNMPv3, any number of them on one event loop.

pysnmp's own way (its high-level calls) was measured first: 190 µs for a value, of which 110 are
pyasn1's decoder. A sweep of 128 switches every thirty seconds fills a core with that. So its lower
layers are used where a question costs, and not where a value does: it writes the requests and does
SNMPv3's keys, digests and ciphers. Answers are read by `collector.switches.snmp.ber`, and a value
costs 11 µs in all. tests/bench/snmp.py measures both, beside net-snmp.

A switch is never believed: every loop ends by a bound that has a name, and whatever is sent becomes
a value, a `Flaw` of its column, or an `SnmpError`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from collector.contract.reason import UnreadReason
from collector.switches.snmp.ber import REPORT, Odd, write_name
from collector.switches.snmp.columns import Column
from collector.switches.snmp.message import (
    AUTHORIZATION_ERROR,
    NO_SUCH_NAME,
    TOO_BIG,
    Answer,
    Community,
    bulk_request,
    get_request,
    new_number,
)
from collector.switches.snmp.model import Credentials, Oid, SnmpError, Target, Value, Walked
from collector.switches.snmp.usm import WRONG_ENGINE, WRONG_TIME, User, report_of
from collector.switches.snmp.wire import Wire, open_wire

COLUMNS_PER_REQUEST = 8
"""Walked side by side. More would make room for fewer rows of each; a name in a question costs
about as much as thirty values in an answer."""
VALUES_PER_ANSWER = 120
"""Asked for at once: about 3 kB, two or three fragments."""
VALUES_PER_GET = 24
"""Single objects in one question; twice that does not fit every agent's buffer (484 bytes)."""
CALM_ANSWERS = 64
"""After so many good answers we ask again for as much as before a loss or a tooBig."""
REQUESTS_PER_WALK_MAX = 4096
"""A table of 30,000 values takes 300; an agent that gives one row an answer may have so many."""
BYTES_PER_WALK_MAX = 16 << 20
"""Answers of one walk together; the largest table known (8,208 rows of six columns) has 1.5 MB."""
RESYNCS_MAX = 3
"""Times that SNMPv3 may ask for the engine's name or clock before one question is given up."""
COLUMNS_REMEMBERED_MAX = 1024
"""Columns whose number of rows is remembered, to ask for no more than there are."""

SMALLER_BITS = 2
"""A second try asks for a quarter of the rows."""
SILENCES_PER_WALK_MAX = 2
"""Questions of a walk that may stay without an answer before the rest of it is given up."""

Make = Callable[[int, int], bytes]
"""Makes a PDU from a request's number and the try (from 0)."""


def open_session(target: Target) -> Session:
    """A session with a switch; nothing is sent before the first question."""
    return Session(target)


class Session:
    """One switch. Questions wait for each other; an abandoned one leaves the session usable."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._wire: Wire | None = None
        self._wires_lost = 0
        self._turn = asyncio.Lock()
        self._envelope: Community | User | None = None
        self._was_answered = False
        self._values_max = VALUES_PER_ANSWER
        self._calm = 0
        self._rows_before: dict[Oid, int] = {}

    async def get(self, oids: list[Oid]) -> list[Value | None]:
        found: dict[bytes, Value] = {}
        starts = range(0, len(oids), VALUES_PER_GET)
        groups = deque(oids[start : start + VALUES_PER_GET] for start in starts)
        async with self._turn:
            while groups:
                group = groups.popleft()
                answer = await self.ask(partial(_get, group))
                groups.extendleft(_take_singles(group, answer, found))
        return [found.get(write_name(name)) for name in oids]

    async def walk(self, columns: list[Oid], rows_max: int) -> Walked:
        walked = {name: Column(name, rows_max) for name in columns}
        async with self._turn:
            await _Walk(self, list(walked.values())).run()
        if len(self._rows_before) > COLUMNS_REMEMBERED_MAX:
            self._rows_before.clear()
        self._rows_before |= {name: len(column.rows) for name, column in walked.items()}
        return Walked(
            {name: column.rows for name, column in walked.items()},
            [flaw for column in walked.values() for flaw in column.flaws()],
        )

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    # How much to ask for ---------------------------------------------------------------------

    def repetitions(self, group: list[Column]) -> int:
        """Rows to ask for: as many as an answer holds, and no more than there were last time.

        One more than that, which shows the end.
        """
        most = max(1, min(self._target.rows_per_answer, self._values_max // len(group)))
        before = self._rows_before
        if any(column.name not in before for column in group):
            return most
        left = max(before[column.name] + 1 - len(column.rows) for column in group)
        return -(-left // -(-left // most)) if left > 0 else most

    def shrink(self, values: int) -> None:
        """Ask for fewer values at once: so many were too many, or were lost on the way."""
        self._values_max = max(1, values)
        self._calm = 0

    def _grow(self) -> None:
        """After CALM_ANSWERS good answers, ask for as much as at first."""
        self._calm += 1
        if self._calm >= CALM_ANSWERS:
            self._values_max = VALUES_PER_ANSWER

    # One question ----------------------------------------------------------------------------

    async def ask(self, make: Make) -> Answer:
        """The answer to a PDU; a smaller one may be made for a second try."""
        wire, envelope = await self._open()
        number = new_number()
        attempt = resyncs = 0
        is_met_now = False
        while attempt <= self._target.retries:
            if isinstance(envelope, User) and envelope.engine is None:
                await self._meet(wire, envelope)
                is_met_now = True
            message = envelope.write(make(number, attempt), number)
            answer = await wire.ask(
                message, partial(envelope.read, wanted_id=number), self._target.answer_seconds
            )
            if answer is None:
                attempt += 1
            elif answer.kind != REPORT:
                return self._check_access(answer)
            elif isinstance(envelope, User):
                resyncs += 1
                self._resync(envelope, answer, resyncs, is_met_now=is_met_now)
                number = new_number()
        raise self._silence(wire)

    async def _open(self) -> tuple[Wire, Community | User]:
        """The socket and the envelope, made when they are first needed."""
        if self._envelope is None:
            self._envelope = _envelope_of(self._target.credentials)
        if self._wire is None or not self._wire.is_usable():
            self.close()
            target = self._target
            self._wire = await open_wire(
                target.address, target.port, target.answer_seconds, self._wires_lost
            )
        return self._wire, self._envelope

    async def _meet(self, wire: Wire, user: User) -> None:
        """Ask the switch for its engine's name and clock."""
        for _ in range(self._target.retries + 1):
            number = new_number()
            engine = await wire.ask(
                user.write_discovery(number),
                partial(user.read_discovery, wanted_id=number),
                self._target.answer_seconds,
            )
            if engine is not None:
                user.meet(engine)
                return
        raise self._silence(wire)

    def _resync(self, user: User, answer: Answer, resyncs: int, *, is_met_now: bool) -> None:
        """Do what a report asks for, or raise the error that it means.

        Keys are made for an engine, so a switch that was replaced refuses them in many ways: the
        engine is discovered again before a refusal is taken as final.
        """
        what = report_of(answer)
        is_about_engine = what in (WRONG_TIME, WRONG_ENGINE)
        if resyncs > RESYNCS_MAX or (is_met_now and not is_about_engine):
            user.forget()
            raise user.explain(answer)
        if what != WRONG_TIME or not answer.is_authentic:
            user.forget()

    def _check_access(self, answer: Answer) -> Answer:
        """The answer; raises SnmpError where the switch denies access."""
        self._was_answered = True
        self._grow()
        if answer.status == AUTHORIZATION_ERROR:
            who = self._envelope.who() if self._envelope else ""
            raise SnmpError(
                UnreadReason.UNREADABLE, f"{who}: the switch answers authorizationError"
            )
        return answer

    def _silence(self, wire: Wire) -> SnmpError:
        """The error for no answer, with what came instead. The engine is then discovered again."""
        target = self._target
        tries = target.retries + 1
        detail = f"no answer from {target.address} port {target.port} in {tries} tries"
        detail += f" of {target.answer_seconds:g} s"
        came = wire.strays.describe()
        reason = UnreadReason.UNPARSEABLE if wire.strays.nonsense else UnreadReason.TIMEOUT
        if isinstance(self._envelope, User):
            is_met = self._envelope.engine is not None
            self._envelope.forget()
            if is_met and target.credentials.privacy and not (came or self._was_answered):
                # net-snmp silently drops what it cannot decipher.
                reason = UnreadReason.UNREADABLE
                detail = f"{self._envelope.who()}: the switch gives its engine's name but drops"
                detail += f" our questions: wrong privacy_key, or not {target.credentials.privacy}?"
        elif not came and not self._was_answered:
            detail += " (a wrong community looks the same)"
        self.close()
        self._wires_lost += 1
        return SnmpError(reason, f"{detail}; there came {came}" if came else detail)


class _Walk:
    """The questions of one walk, and the bounds on all of them together."""

    def __init__(self, session: Session, columns: list[Column]) -> None:
        self._session = session
        starts = range(0, len(columns), COLUMNS_PER_REQUEST)
        self._groups = deque(columns[start : start + COLUMNS_PER_REQUEST] for start in starts)
        self._row_by_row: set[Oid] = set()
        self._repetitions = 1
        self._requests = self._bytes = self._silences = 0

    async def run(self) -> None:
        while self._groups:
            group = [column for column in self._groups[0] if column.is_open]
            if not group:
                self._groups.popleft()
                continue
            if self._requests >= REQUESTS_PER_WALK_MAX or self._bytes >= BYTES_PER_WALK_MAX:
                detail = f"after {self._requests} answers of {self._bytes} bytes together"
                self._fail_all(UnreadReason.UNPARSEABLE, "the walk does not end", detail)
                return
            planned = self._plan(group)
            try:
                answer = await self._session.ask(partial(self._make, group, planned))
            except SnmpError as error:
                self._on_silence(group, error)
                continue
            self._requests += 1
            self._bytes += answer.size
            if self._repetitions < planned:
                self._session.shrink(self._repetitions * len(group))
            self._take(group, answer)

    def _plan(self, group: list[Column]) -> int:
        if any(column.name in self._row_by_row for column in group):
            return 1
        return self._session.repetitions(group)

    def _make(self, group: list[Column], planned: int, number: int, attempt: int) -> bytes:
        """The question. A second try asks for less: fragments are what networks lose first."""
        self._repetitions = max(1, planned >> (attempt * SMALLER_BITS))
        names = [column.where() for column in group]
        return bulk_request(number, names, self._repetitions)

    def _take(self, group: list[Column], answer: Answer) -> None:
        """Give every column its part of an answer, or handle a refusal."""
        if not answer.status and answer.bindings:
            width = len(group)
            for position, column in enumerate(group):
                column.take(answer.bindings[position::width])
        elif answer.status in (0, TOO_BIG):
            self._ask_for_less(group, answer.status_name() if answer.status else "an empty answer")
        elif self._repetitions > 1:
            # A single row may be what fails: the rows before it are had one by one.
            self._row_by_row.update(column.name for column in group)
        elif 0 < answer.failed_at <= len(group):
            _refuse(group[answer.failed_at - 1], answer)
        elif len(group) > 1:
            self._ask_singly(group)
        else:
            _refuse(group[0], answer)

    def _ask_for_less(self, group: list[Column], why: str) -> None:
        """Ask for fewer rows, then fewer columns, then give up."""
        if self._repetitions > 1:
            self._session.shrink(self._repetitions * len(group) // 2)
        elif len(group) > 1:
            self._ask_singly(group)
        else:
            group[0].fail(UnreadReason.UNPARSEABLE, "not even one row", why)

    def _ask_singly(self, group: list[Column]) -> None:
        self._groups.popleft()
        self._groups.extendleft([column] for column in reversed(group))

    def _on_silence(self, group: list[Column], error: SnmpError) -> None:
        """Give up one part of a table at which a switch hangs; or all, if the switch is gone."""
        self._silences += 1
        if not self._requests:
            raise error
        if self._silences < SILENCES_PER_WALK_MAX:
            for column in group:
                column.fail(error.reason, "no answer", error.detail)
        else:
            self._fail_all(error.reason, "no answer", error.detail)

    def _fail_all(self, reason: UnreadReason, what: str, detail: str) -> None:
        for group in self._groups:
            for column in group:
                if column.is_open:
                    column.fail(reason, what, detail)


def _refuse(column: Column, answer: Answer) -> None:
    """End a column that the switch refuses. Agents of version 1 answer noSuchName at the end."""
    if answer.status == NO_SUCH_NAME:
        column.is_open = False
    else:
        column.fail(UnreadReason.UNREADABLE, "the switch refuses", answer.status_name())


def _envelope_of(credentials: Credentials) -> Community | User:
    if credentials.version == "3":
        return User(credentials)
    if credentials.version == "2c":
        return Community(credentials.community)
    raise SnmpError(UnreadReason.UNREADABLE, f"version {credentials.version!r} is neither 2c nor 3")


def _get(group: list[Oid], number: int, _attempt: int) -> bytes:
    return get_request(number, group)


def _take_singles(group: list[Oid], answer: Answer, found: dict[bytes, Value]) -> list[list[Oid]]:
    """Keep what was answered; the groups to ask again, each shorter, in reverse."""
    if not answer.status:
        found.update((name, value) for name, value in answer.bindings if not isinstance(value, Odd))
        return []
    if len(group) == 1:
        return []
    if 0 < answer.failed_at <= len(group) and answer.status != TOO_BIG:
        return [[*group[: answer.failed_at - 1], *group[answer.failed_at :]]]
    middle = len(group) // 2
    return [group[middle:], group[:middle]]
