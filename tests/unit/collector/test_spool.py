"""The spool: what it keeps, what it drops, and what it survives."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from collector.agent.meter import Meter
from collector.agent.spool import REJECTED_FILES_MAX, Spool
from collector.contract import wire
from collector.contract.errors import SpoolError
from tests.doubles.fakes import HandClock, sample


class Box:
    """A spool in a folder, opened and closed by the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = HandClock()
        self.meter = Meter()

    def open(
        self, bytes_max: int = 1 << 20, batches_max: int = 1000, host_boot_id: str = "boot-1"
    ) -> Spool:
        return Spool(
            self.folder,
            bytes_max=bytes_max,
            batches_max=batches_max,
            host_boot_id=host_boot_id,
            now_ns=lambda: self.clock.wall_ns,
            meter=self.meter,
        )

    def dropped(self, reason: str) -> tuple[float | None, float | None]:
        return (
            self.meter.value("fabric_agent_dropped_batches_total", reason=reason),
            self.meter.value("fabric_agent_dropped_samples_total", reason=reason),
        )


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "spool")


def put(spool: Spool, samples: int = 1) -> bytes:
    batch = wire.pack_batch(
        [sample("m", i) for i in range(samples)],
        agent="node-0",
        boot=spool.boot,
        sequence=spool.next_sequence,
        sent_ms=0,
        common={"host": "node-0"},
    )
    body = wire.encode_batch(batch)
    spool.put(body, samples=samples)
    return body


def sequences(spool: Spool) -> list[int]:
    found = []
    while (oldest := spool.oldest()) is not None:
        found.append(oldest.entry.sequence)
        spool.remove(oldest.entry)
    return found


def test_batches_come_back_in_order_as_they_were_put(box: Box) -> None:
    spool = box.open()
    bodies = [put(spool, samples) for samples in (1, 2, 3)]
    for sequence, expected in enumerate(bodies):
        oldest = spool.oldest()
        assert oldest is not None
        entry, body, batch = oldest.entry, oldest.body, oldest.batch
        assert (entry.sequence, entry.samples, body) == (sequence, sequence + 1, expected)
        assert (batch.boot, batch.sequence) == (spool.boot, sequence)
        spool.remove(entry)
    assert spool.oldest() is None
    assert spool.size_bytes == 0


def newest(spool: Spool, batches_max: int = 60, **more: Any) -> list[int]:  # noqa: ANN401
    run = spool.newest(batches_max=batches_max, **{"readings_max": 1000, **more})
    return [each.entry.sequence for each in run]


def test_the_newest_come_as_a_run_within_its_bounds(box: Box) -> None:
    spool = box.open()
    for _ in range(6):
        put(spool, 10)
    assert newest(spool) == [0, 1, 2, 3, 4, 5]
    assert newest(spool, batches_max=2) == [4, 5]
    assert newest(spool, readings_max=35) == [3, 4, 5]
    assert newest(spool, readings_max=1) == [5], "one at least"
    assert newest(spool, apart=range(5, 6)) == [5]
    assert newest(spool, apart=range(2, 4)) == [4, 5]
    [_, last] = spool.newest(batches_max=2, readings_max=1000)
    spool.remove(last.entry)
    put(spool, 10)
    assert newest(spool) == [6], "another one lies between"


def test_a_run_ends_where_the_numbering_or_the_labels_change(box: Box) -> None:
    spool = box.open()
    put(spool)
    spool.close()
    spool = box.open(host_boot_id="boot-2")
    put(spool)
    put(spool)
    assert newest(spool) == [1, 2]


def test_a_broken_batch_ends_a_run_and_the_newest_good_one_comes(box: Box) -> None:
    spool = box.open()
    for _ in range(6):
        put(spool, 2)
    names = sorted(path.name for path in (box.folder / "batches").iterdir())
    for broken in (2, 5):
        (box.folder / "batches" / names[broken]).write_bytes(b"")
    assert newest(spool, batches_max=1) == [4]
    assert newest(spool) == [3, 4]
    assert box.dropped("corrupt") == (2, 4)


def test_batches_that_are_being_sent_are_dropped_last(box: Box) -> None:
    spool = box.open(batches_max=3)
    for _ in range(3):
        put(spool)
    assert newest(spool, batches_max=2) == [1, 2]
    put(spool)
    assert box.dropped("spool_full") == (1, 1)
    put(spool)
    assert [path.name[18:20] for path in sorted((box.folder / "batches").iterdir())] == [
        "01",
        "02",
        "04",
    ]


def test_a_sequence_is_not_used_twice_when_the_newest_are_gone_first(box: Box) -> None:
    spool = box.open()
    for _ in range(4):
        put(spool)
    for loaded in spool.newest(batches_max=2, readings_max=1000):
        spool.remove(loaded.entry)
    os.close(spool._lock_file)  # as a crash does: nothing is written
    again = box.open()
    assert (again.next_sequence, len(again)) == (4, 2)


def test_a_restart_keeps_batches_numbering_and_sequence(box: Box) -> None:
    spool = box.open()
    boot = spool.boot
    for _ in range(3):
        put(spool)
    spool.close()
    again = box.open()
    assert (again.boot, again.next_sequence, len(again)) == (boot, 3, 3)
    assert sequences(again) == [0, 1, 2]
    again.close()
    empty = box.open()
    assert (empty.boot, empty.next_sequence, len(empty)) == (boot, 3, 0)


def test_a_reboot_of_the_host_starts_another_numbering_that_counts_on(box: Box) -> None:
    spool = box.open()
    put(spool)
    spool.close()
    rebooted = box.open(host_boot_id="boot-2")
    assert rebooted.boot != spool.boot
    assert rebooted.next_sequence == 1
    oldest = rebooted.oldest()
    assert oldest is not None
    assert oldest.batch.boot == spool.boot


def test_without_a_boot_id_every_start_is_another_numbering(box: Box) -> None:
    first = box.open(host_boot_id="")
    first.close()
    assert box.open(host_boot_id="").boot != first.boot


def test_an_unreadable_numbering_is_another_numbering(box: Box) -> None:
    spool = box.open()
    put(spool)
    spool.close()
    (box.folder / "numbering").write_bytes(b"\xff{")
    again = box.open()
    assert again.boot != spool.boot
    assert again.next_sequence == 1


def test_the_oldest_make_room_and_are_counted_with_their_samples(box: Box) -> None:
    spool = box.open()
    size = len(put(spool, 5))
    spool.close()
    spool = box.open(bytes_max=3 * size + 60)
    for _ in range(4):
        put(spool, 5)
        assert spool.size_bytes <= 3 * size + 60
    assert box.dropped("spool_full") == (2, 10)
    assert sequences(spool) == [2, 3, 4]


def test_a_smaller_bound_holds_from_the_start(box: Box) -> None:
    spool = box.open()
    for _ in range(5):
        put(spool)
    spool.close()
    smaller = box.open(batches_max=2)
    assert box.dropped("spool_full") == (3, 3)
    assert sequences(smaller) == [3, 4]


def test_the_number_of_batches_is_bounded_too(box: Box) -> None:
    spool = box.open(batches_max=2)
    for _ in range(5):
        put(spool)
    assert sequences(spool) == [3, 4]
    assert box.dropped("spool_full") == (3, 3)


def test_a_batch_larger_than_the_spool_is_dropped_and_its_sequence_used_again(box: Box) -> None:
    spool = box.open(bytes_max=200)
    put(spool, 1000)
    assert (len(spool), spool.next_sequence) == (0, 0)
    assert box.dropped("batch_too_large") == (1, 1000)


def test_a_sequence_is_not_used_twice_after_a_drop_and_a_crash(box: Box) -> None:
    """The dropped batch may have reached the service; another under its number would be lost."""
    spool = box.open(batches_max=1)
    put(spool)
    oldest = spool.oldest()
    assert oldest is not None
    spool.reject(oldest.entry)
    os.close(spool._lock_file)  # as a crash does: nothing is written
    assert box.open().next_sequence == 1


def test_broken_batches_are_set_aside_and_the_next_one_comes(box: Box) -> None:
    spool = box.open()
    for _ in range(4):
        put(spool, 2)
    names = sorted(path.name for path in (box.folder / "batches").iterdir())
    (box.folder / "batches" / names[0]).write_bytes(b"")
    (box.folder / "batches" / names[1]).write_bytes(b"\x28\xb5\x2f\xfd garbage")
    (box.folder / "batches" / names[2]).unlink()
    oldest = spool.oldest()
    assert oldest is not None
    assert oldest.entry.sequence == 3
    assert box.dropped("corrupt") == (3, 6)
    assert sorted(path.name for path in (box.folder / "aside").iterdir()) == names[:2]


def test_foreign_files_are_set_aside_and_half_written_ones_removed(box: Box) -> None:
    spool = box.open()
    put(spool)
    spool.close()
    batches = box.folder / "batches"
    (batches / "README").write_text("hello")
    (batches / "folder").mkdir()
    (batches / "00000000000000000007.3.batch.writing").write_bytes(b"half")
    again = box.open()
    assert sequences(again) == [0]
    assert box.meter.value("fabric_agent_spool_foreign_files_total") == 2
    assert not list(batches.iterdir())


def test_a_full_disk_drops_and_counts_and_the_next_batch_is_written(
    box: Box, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spool = box.open()
    put(spool)

    def fail(path: Path, content: bytes) -> int:
        # What a full disk leaves: some bytes under the temporary name, and an error.
        with path.open("wb") as file:
            file.write(content[:3])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fail)
        put(spool, 7)
        put(spool, 7)
        spool.save_state({})
    put(spool)
    assert box.dropped("disk_error") == (2, 14)
    assert sequences(spool) == [0, 1]
    assert sum("No space left" in record.getMessage() for record in caplog.records) == 2
    assert not list(box.folder.rglob("*.writing"))


def test_rejected_batches_are_kept_for_a_person_up_to_a_bound(box: Box) -> None:
    spool = box.open()
    for _ in range(REJECTED_FILES_MAX + 5):
        put(spool)
        oldest = spool.oldest()
        assert oldest is not None
        spool.reject(oldest.entry)
    assert len(list((box.folder / "rejected").iterdir())) == REJECTED_FILES_MAX
    assert spool.size_bytes == 0


def test_two_agents_cannot_share_a_spool(box: Box) -> None:
    spool = box.open()
    with pytest.raises(SpoolError, match=f"in use by another agent \\(process {os.getpid()}\\)"):
        box.open()
    spool.close()
    box.open().close()


def test_a_folder_that_cannot_be_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match=r"file/spool: Not a directory; set spool_dir"):
        Box(tmp_path / "file" / "spool").open()


def test_a_late_answer_changes_nothing_in_a_closed_spool(box: Box) -> None:
    spool = box.open()
    put(spool)
    oldest = spool.oldest()
    assert oldest is not None
    spool.close()
    spool.remove(oldest.entry)
    assert sequences(box.open()) == [0]


def test_state_is_kept_for_one_boot_of_the_host(box: Box) -> None:
    spool = box.open()
    assert spool.load_state() == {}
    spool.save_state({"ib_sysfs": b"\x01"})
    spool.close()
    again = box.open()
    assert again.load_state() == {"ib_sysfs": b"\x01"}
    (box.folder / "state.msgpack").write_bytes(b"\xc1")
    assert again.load_state() == {}
    again.save_state({"ib_sysfs": b"\x02"})
    again.close()
    assert box.open(host_boot_id="boot-2").load_state() == {}


def test_the_age_of_the_oldest_batch_survives_a_clock_that_steps_back(box: Box) -> None:
    spool = box.open()
    assert spool.oldest_age_seconds() == 0
    put(spool)
    box.clock.advance(12)
    assert spool.oldest_age_seconds() == 12
    box.clock.advance(-60)
    assert spool.oldest_age_seconds() == 0
