"""Our side of ethtool's generic netlink, against a made-up kernel and against any bytes."""

import errno
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.doors.ethtool_netlink import (
    BINS_MAX,
    EthtoolNetlink,
    Fec,
    FecBin,
    parse_fec,
    parse_recorded_fec,
)
from collector.doors.netlink import split_attributes
from collector.parsing.transceiver import FIRST_LOOK, Page
from tests.doubles.ethtool_kernel import FakeKernel, fec_answer
from tests.doubles.transceivers import qsfp28


class Client(EthtoolNetlink):
    """Speaks to the test in place of the kernel."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def _connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made.connect(str(self._path))
        made.settimeout(5)
        return made


def test_a_piece_of_memory_comes_as_asked(tmp_path: Path) -> None:
    plugged = qsfp28()
    with FakeKernel(tmp_path / "kernel", plugged) as kernel:
        client = Client(kernel.path)
        assert client.module_piece("eth0", FIRST_LOOK) == plugged.page(0)[:128]
        assert client.module_piece("eth0", Page(0x50, 0, 3, 128, 8)) == plugged.page(3)[128:136]
        assert kernel.asked == [(0x50, 0, 0, 0, 128), (0x50, 0, 3, 128, 8)]
        client.close()


def test_a_refusal_has_the_kernels_number(tmp_path: Path) -> None:
    with FakeKernel(tmp_path / "kernel", qsfp28()) as kernel:
        client = Client(kernel.path)
        with pytest.raises(OSError, match="Invalid argument") as refused:
            client.module_piece("eth0", Page(0x50, 0, 9, 128, 128))
        assert refused.value.errno == errno.EINVAL
        with pytest.raises(OSError, match="not supported"):
            client.fec("eth0")
        client.close()


def test_error_correction_and_its_histogram(tmp_path: Path) -> None:
    answer = fec_answer([(0, 0, 4_000_000_000), (1, 3, 17)])
    with FakeKernel(tmp_path / "kernel", None, answer) as kernel:
        client = Client(kernel.path)
        assert client.fec("eth0") == Fec(
            mode="rs",
            corrected_blocks=812_345,
            uncorrectable_blocks=2,
            corrected_bits=990_001,
            bins=(FecBin(0, 0, 4_000_000_000), FecBin(1, 3, 17)),
        )
        client.close()


def test_a_name_that_no_interface_can_have_is_not_sent() -> None:
    with pytest.raises(OSError, match="No such device"):
        EthtoolNetlink().fec("an-interface-of-a-dream")


def test_what_the_driver_does_not_count_is_absent() -> None:
    found = parse_fec(list(split_attributes(b"")))
    assert found == Fec(mode="")
    unset = struct.pack("=HHHHQ", 16, 5 | 0x8000, 12, 2, (1 << 64) - 1)
    assert parse_fec(list(split_attributes(unset))).corrected_blocks is None


def test_a_histogram_is_bounded() -> None:
    answer = fec_answer([(place, place, 1) for place in range(500)])
    assert len(parse_recorded_fec(answer.hex()).bins) == BINS_MAX


@given(st.binary(max_size=400))
def test_any_bytes_are_an_answer(data: bytes) -> None:
    found = parse_recorded_fec(data.hex())
    assert all(count is None or count >= 0 for count in found[1:4])


def test_the_running_kernel_answers_or_refuses() -> None:
    """`lo` has no module: whatever this kernel knows, it is an error with a number."""
    client = EthtoolNetlink()
    try:
        with pytest.raises(OSError, match=r".+") as refused:
            client.module_piece("lo", FIRST_LOOK)
        assert refused.value.errno
    finally:
        client.close()
