"""Whether the service can do its work, and if not, what is wrong, in plain lines.

The lines go to clients without a token: they name parts, ages and bounds, and no path, address or
text of the engine; those are in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import msgspec

from api.base.limits import (
    COMMIT_STUCK_SECONDS,
    COMMITS_FAILING_SECONDS,
    DAMAGE_SHOWN_SECONDS,
    EVALUATION_LATE_SECONDS,
)
from api.base.vitals import Vitals
from api.data.ingest.commit import GroupCommit
from api.data.inventory.repository import Inventory
from api.data.store.errors import StoreBusy
from api.data.store.store import Store
from api.data.store.watch import Room, StoreWatch
from api.oncall.evaluate.lead import Lead
from collector.contract.errors import InventoryError, StoreError

MIB = 1 << 20


class Wellbeing(msgspec.Struct, frozen=True):
    """The parts that are asked."""

    vitals: Vitals
    store: Store
    inventory: Inventory
    commit: GroupCommit
    disks: StoreWatch
    lead: Lead

    async def complaints(self, broken_works: Sequence[str]) -> list[str]:
        """What is wrong, one line each; empty: nothing."""
        asked = await asyncio.gather(
            asyncio.to_thread(self._ask_store),
            asyncio.to_thread(self._ask_inventory),
            asyncio.to_thread(self.disks.look_at_disks),
        )
        store, inventory, rooms = asked
        lines = [line for line in (store, inventory) if line]
        lines += [short_of_room(room) for room in rooms if room.is_short]
        lines += self._commit_lines()
        lines += self._evaluation_lines()
        lines += [f"background work: {name!r} breaks again and again" for name in broken_works]
        return lines

    def _ask_store(self) -> str:
        try:
            self.store.ping()
        except StoreBusy:
            return "store: busy, too many questions at once"
        except StoreError:
            return "store: it does not answer"
        if self.store.damage_age_s < DAMAGE_SHOWN_SECONDS:
            return (
                f"store: data on disk are damaged, met {self.store.damaged_reads} times,"
                f" last {self.store.damage_age_s:.0f} s ago; runbook store-damaged"
            )
        return ""

    def _ask_inventory(self) -> str:
        try:
            self.inventory.ping()
        except InventoryError:
            return "inventory: it does not answer"
        pulse = self.vitals.inventory
        if pulse.failing_s > COMMITS_FAILING_SECONDS:
            return f"inventory: it has taken no write for {pulse.failing_s:.0f} s"
        return ""

    def _commit_lines(self) -> Iterator[str]:
        pulse = self.vitals.commit
        if pulse.failing_s > COMMITS_FAILING_SECONDS:
            yield f"commit: every insert has failed for {pulse.failing_s:.0f} s; {pulse.reason}"
        if self.commit.stuck_s > COMMIT_STUCK_SECONDS:
            yield (
                f"commit: {self.commit.pending_rows} rows wait, and no insert has ended for"
                f" {self.commit.stuck_s:.0f} s"
            )

    def _evaluation_lines(self) -> Iterator[str]:
        pulse = self.vitals.evaluation
        if self.lead.is_held() and pulse.quiet_s > EVALUATION_LATE_SECONDS:
            yield (
                f"evaluation: this process leads and has completed none for {pulse.quiet_s:.0f} s"
            )


def short_of_room(room: Room) -> str:
    return (
        f"disk: {room.free / MIB:.0f} of {room.total / MIB:.0f} MiB are free"
        f" where the {room.disk} lies"
    )
