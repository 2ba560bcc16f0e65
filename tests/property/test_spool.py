"""The spool against a list in memory: whatever happens in whatever order, they agree."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from collector.agent.meter import Meter
from collector.agent.spool import Loaded, Spool
from collector.contract import wire
from tests.doubles.fakes import sample
from tests.tools.cut import CUT

BYTES_MAX = 1500
BATCHES_MAX = 5


class SpoolMachine(RuleBasedStateMachine):
    """Puts, acknowledgements, rejections, crashes and reboots in any order.

    The model is the list of batches that must be there, by sequence. Only three things take one
    out: an acknowledgement, a rejection, and a drop, which must have been counted.
    """

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="spool-"))
        self.meter = Meter()
        self.host_boot = 0
        self.waiting: list[tuple[str, int, int]] = []
        self.gone: set[tuple[str, int]] = set()
        self.sending: set[tuple[str, int]] = set()
        self.dropped = 0
        self.dropped_samples = 0
        self.used: set[tuple[str, int]] = set()
        self.open()

    def open(self) -> None:
        self.spool = Spool(
            self.folder / "spool",
            bytes_max=BYTES_MAX,
            batches_max=BATCHES_MAX,
            host_boot_id=f"boot-{self.host_boot}",
            now_ns=lambda: 0,
            meter=self.meter,
        )

    @rule(samples=st.integers(1, 60))
    def put(self, samples: int) -> None:
        key = self.spool.boot, self.spool.next_sequence
        assert key not in self.used, "a sequence was given out twice"
        batch = wire.pack_batch(
            [sample("m", 1.5 * i, i * 10**9) for i in range(samples)],
            agent="a",
            boot=key[0],
            sequence=key[1],
            sent_ms=0,
            common={},
        )
        self.spool.put(wire.encode_batch(batch), samples=samples)
        if self.spool.next_sequence > key[1]:
            self.used.add(key)
            self.waiting.append((*key, samples))
        else:
            self.dropped += 1
            self.dropped_samples += samples
        # What the bound pushed out must be the oldest that is not being sent, and counted.
        while len(self.waiting) > len(self.spool):
            before = self.waiting[:-1] or self.waiting
            lost = next((one for one in before if one[:2] not in self.sending), before[0])
            self.take(lost)
            self.dropped += 1
            self.dropped_samples += lost[2]

    def take(self, one: tuple[str, int, int]) -> None:
        self.waiting.remove(one)
        self.gone.add(one[:2])
        self.sending.discard(one[:2])

    @precondition(lambda self: self.waiting)
    @rule()
    def send(self) -> None:
        assert self.spool.oldest() is not None
        self.sending = {self.waiting[0][:2]}

    @rule(batches_max=st.integers(1, 4), readings_max=st.integers(1, 100))
    def send_newest(self, batches_max: int, readings_max: int) -> None:
        self.newest(batches_max, readings_max)

    def newest(self, batches_max: int, readings_max: int) -> list[Loaded]:
        run = self.spool.newest(batches_max=batches_max, readings_max=readings_max)
        expected = self.waiting[-1:]
        for one in self.waiting[-2::-1]:
            is_next = (one[0], one[1] + 1) == expected[0][:2]
            readings = one[2] + sum(each[2] for each in expected)
            if not is_next or len(expected) == batches_max or readings > readings_max:
                break
            expected.insert(0, one)
        shown = [(each.batch.boot, each.batch.sequence, each.entry.samples) for each in run]
        assert shown == expected
        self.sending = {one[:2] for one in expected}
        return run

    @precondition(lambda self: self.waiting)
    @rule()
    def acknowledge(self) -> None:
        oldest = self.spool.oldest()
        assert oldest is not None
        entry, batch = oldest.entry, oldest.batch
        assert (batch.boot, batch.sequence, entry.samples) == self.waiting[0]
        self.sending = set()
        self.take(self.waiting[0])
        self.spool.remove(entry)
        self.spool.remove(entry)  # a second time changes nothing

    @rule(batches_max=st.integers(1, 4))
    def acknowledge_newest(self, batches_max: int) -> None:
        for loaded in self.newest(batches_max, 10_000):
            key = (loaded.batch.boot, loaded.batch.sequence, loaded.entry.samples)
            self.take(key)
            self.spool.remove(loaded.entry)

    @precondition(lambda self: self.waiting)
    @rule()
    def reject(self) -> None:
        oldest = self.spool.oldest()
        assert oldest is not None
        self.sending = set()
        self.take(self.waiting[0])
        self.spool.reject(oldest.entry)

    @rule(is_writing=st.booleans(), reboots=st.booleans())
    def crash(self, *, is_writing: bool, reboots: bool) -> None:
        if is_writing:
            half = self.folder / "spool" / "batches" / "00000000000000000099.1.batch.writing"
            half.write_bytes(b"half a batch")
        os.close(self.spool._lock_file)  # the kernel does this; nothing else happens
        self.sending = set()
        self.host_boot += reboots
        self.open()

    @invariant()
    def agrees_with_the_model(self) -> None:
        if not hasattr(self, "spool"):
            return
        assert len(self.spool) == len(self.waiting) <= BATCHES_MAX
        on_disk = list((self.folder / "spool" / "batches").iterdir())
        assert len(on_disk) == len(self.waiting)
        assert sum(path.stat().st_size for path in on_disk) == self.spool.size_bytes <= BYTES_MAX
        names = sorted(path.name for path in on_disk)
        assert names == [f"{number:020}.{samples}.batch" for _, number, samples in self.waiting]
        assert not self.gone & {one[:2] for one in self.waiting}
        counted = [
            sum(
                self.meter.value(f"fabric_agent_dropped_{what}_total", reason=reason) or 0
                for reason in ("spool_full", "batch_too_large", "disk_error", "corrupt")
            )
            for what in ("batches", "samples")
        ]
        assert counted == [self.dropped, self.dropped_samples]

    def teardown(self) -> None:
        if hasattr(self, "spool"):
            self.spool.close()
            shutil.rmtree(self.folder)


SpoolMachine.TestCase.settings = settings(max_examples=CUT.examples(60), stateful_step_count=40)
TestSpool = SpoolMachine.TestCase
