"""The spool against a list in memory: whatever happens in whatever order, they agree."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from collector.agent.meter import Meter
from collector.agent.spool import Spool
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
        self.is_sending = False
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
            is_second = self.is_sending and len(self.waiting) > 2
            boot, sequence, lost = self.waiting.pop(1 if is_second else 0)
            self.gone.add((boot, sequence))
            self.is_sending = self.is_sending and is_second
            self.dropped += 1
            self.dropped_samples += lost

    @precondition(lambda self: self.waiting)
    @rule()
    def send(self) -> None:
        assert self.spool.oldest() is not None
        self.is_sending = True

    def take_oldest(self) -> tuple[str, int, int]:
        boot, sequence, samples = self.waiting.pop(0)
        self.gone.add((boot, sequence))
        self.is_sending = False
        return boot, sequence, samples

    @precondition(lambda self: self.waiting)
    @rule()
    def acknowledge(self) -> None:
        oldest = self.spool.oldest()
        assert oldest is not None
        entry, _, batch = oldest
        assert (batch.boot, batch.sequence, entry.samples) == self.take_oldest()
        self.spool.remove(entry)
        self.spool.remove(entry)  # a second time changes nothing

    @precondition(lambda self: self.waiting)
    @rule()
    def reject(self) -> None:
        oldest = self.spool.oldest()
        assert oldest is not None
        self.take_oldest()
        self.spool.reject(oldest[0])

    @rule(is_writing=st.booleans(), reboots=st.booleans())
    def crash(self, *, is_writing: bool, reboots: bool) -> None:
        if is_writing:
            half = self.folder / "spool" / "batches" / "00000000000000000099.1.batch.writing"
            half.write_bytes(b"half a batch")
        os.close(self.spool._lock_file)  # the kernel does this; nothing else happens
        self.is_sending = False
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
        oldest = self.spool.oldest()
        if oldest is None:
            assert not self.waiting
        else:
            assert (oldest[2].boot, oldest[2].sequence, oldest[0].samples) == self.waiting[0]
            assert (oldest[2].boot, oldest[2].sequence) not in self.gone
            if not self.is_sending:
                self.spool.put_back()
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
