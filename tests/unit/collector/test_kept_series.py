"""Series that are kept from read to read."""

from collector.reading.kept_series import KeptSeries


def test_a_series_is_the_same_object_while_each_read_shows_it() -> None:
    kept = KeptSeries()
    reads = []
    for _ in range(3):
        kept.begin_read()
        reads.append(kept.find("fabric_x", device="mlx5_0"))
        assert kept.find("fabric_x", device="mlx5_0") is reads[0]
    assert reads[2] is reads[0]
    assert kept.find("fabric_x", device="mlx5_1") != reads[0]
    assert kept.find("fabric_x").labels == ()


def test_what_a_read_left_out_is_forgotten_also_after_reads_that_ended_early() -> None:
    kept = KeptSeries()
    first = kept.find("fabric_x", pid="0")
    for pid in range(1, 100):
        kept.begin_read()
        kept.find("fabric_x", pid=str(pid))
    assert len(kept) <= 2
    assert kept.find("fabric_x", pid="0") is not first
