"""Memories of made-up transceivers, byte by byte from the documents, without the code under test.

A `Plugged` holds pages by (I2C address, bank, page); the part without pages is the first half of
page 0. Numbers are raw, as a module stores them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

PAGE = 128


@dataclass
class Plugged:
    """A module in a cage."""

    memory: dict[tuple[int, int, int], bytearray] = field(default_factory=dict)

    def page(self, page: int, address: int = 0x50, bank: int = 0) -> bytearray:
        """256 bytes of a page; offsets below 128 of pages but 0 are never asked for."""
        return self.memory.setdefault((address, bank, page), bytearray(2 * PAGE))

    def write(self, offset: int, data: bytes, page: int = 0, address: int = 0x50) -> None:
        self.page(page, address)[offset : offset + len(data)] = data

    def text(self, offset: int, length: int, text: str, page: int = 0) -> None:
        self.write(offset, text.encode().ljust(length), page)

    def numbers(self, offset: int, *values: int, page: int = 0, address: int = 0x50) -> None:
        packed = b"".join(struct.pack(">h" if value < 0 else ">H", value) for value in values)
        self.write(offset, packed, page, address)

    def piece(self, address: int, bank: int, page: int, offset: int, length: int) -> bytes | None:
        found = self.memory.get((address, bank, page))
        if found is None or offset + length > 2 * PAGE or (page and offset < PAGE):
            return None
        return bytes(found[offset : offset + length])

    def recording(self) -> str:
        """As `Host.module_piece` reads it from a captured tree."""
        lines = []
        for (address, bank, page), data in sorted(self.memory.items()):
            for offset in (0, PAGE) if page == 0 else (PAGE,):
                content = data[offset : offset + PAGE].hex()
                lines.append(f"{address:02x} {bank:02x} {page:02x} {offset:02x}: {content}\n")
        return "".join(lines)


def qsfp_dd(bias_scale: int = 0) -> Plugged:
    """A 400G DR4 in QSFP-DD, by OIF-CMIS-05.2: four media lanes, diagnostics of two groups."""
    made = Plugged()
    made.write(0, bytes([0x18, 0x52, 0x00, 0x07]))
    made.write(9, bytes([0b0000_0100]))  # temperature: high warning
    made.numbers(14, round(61.5 * 256), 33012)
    made.write(39, bytes([3, 17]))
    made.write(85, bytes([0x02]))  # single-mode fibre
    made.write(128, bytes([0x18]))
    made.text(129, 16, "MAKER")
    made.write(145, bytes([0x00, 0x17, 0x6A]))
    made.text(148, 16, "MK-400DR4")
    made.text(164, 2, "A2")
    made.text(166, 16, "MK2231X00042")
    made.text(182, 8, "260112  ")
    made.write(200, bytes([0x80, 48]))
    made.write(203, bytes([0x0C]))
    made.write(210, bytes([0xF0, 0x00, 0x04]))  # lanes 5 to 8 are not there; 1310 nm DFB
    abilities = made.page(1)
    abilities[130:132] = bytes([0, 0])
    abilities[142] = 0x40 | 0x20
    abilities[159], abilities[160] = 0x03, 0x07 | bias_scale << 3
    limits = [75, -5, 70, 0]
    made.numbers(128, *(round(each * 256) for each in limits), page=2)
    made.numbers(136, 36300, 29700, 34650, 31350, page=2)
    made.numbers(176, 31623, 2512, 25119, 3162, page=2)
    made.numbers(184, 40000, 5000, 37500, 7500, page=2)
    made.numbers(192, 31623, 1259, 25119, 2512, page=2)
    lanes = made.page(0x11)
    lanes[128:132] = bytes([0x44, 0x44, 0, 0])
    lanes[152] = 0b0010  # lane 2: too little light, a warning
    made.numbers(154, 11220, 10965, 11482, 10715, 0, 0, 0, 0, page=0x11)
    made.numbers(170, 21500, 21800, 21250, 22100, 0, 0, 0, 0, page=0x11)
    made.numbers(186, 8912, 2455, 9120, 8710, 0, 0, 0, 0, page=0x11)
    made.page(0x2F)[128] = 1
    for lane in range(4):
        made.write(128 + 2 * lane, bytes([lane, 5]), 0x20)
        made.numbers(128 + 2 * lane, round((20.5 - lane) * 256), page=0x24)
    made.write(136, bytes([0x10, 13]), 0x20)  # an average: not read
    made.numbers(136, 17 << 11 | 99, page=0x24)
    made.write(128, bytes([0x00, 15, 0x00, 16, 0x00, 4]), 0x21)
    made.numbers(128, 16 << 11 | 240, 12 << 11 | 1, 55 * 256, page=0x25)
    return made


def qsfp28() -> Plugged:
    """A 100G SR4, by SFF-8636 revision 2.10a."""
    made = Plugged()
    made.write(0, bytes([0x11, 0x07, 0x00]))
    made.write(3, bytes([0b0000_1000]))  # no light on lane 4
    made.write(6, bytes([0b1000_0000]))  # temperature: high alarm
    made.numbers(9, 0x0005)  # lane 4: too little light, alarm and warning
    made.numbers(22, round(72.25 * 256))
    made.numbers(26, 32890)
    made.numbers(34, 7943, 8128, 7762, 1)
    made.numbers(42, 3400, 3450, 3390, 3410)
    made.numbers(50, 9120, 9333, 8913, 9016)
    made.write(128, bytes([0x11]))
    made.write(130, bytes([0x0C]))
    made.write(147, bytes([0x00]))  # 850 nm VCSEL
    made.text(148, 16, "MAKER")
    made.write(165, bytes([0x00, 0x17, 0x6A]))
    made.text(168, 16, "MK-100SR4")
    made.text(184, 2, "B1")
    made.numbers(186, 17000)
    made.text(196, 16, "MK1907A11")
    made.text(212, 8, "190702  ")
    made.write(220, bytes([0x0C]))
    made.write(221, bytes([0x18]))
    made.numbers(128, *(round(each * 256) for each in (75, -5, 70, 0)), page=3)
    made.numbers(144, 36300, 29700, 34650, 31350, page=3)
    made.numbers(176, 21878, 741, 17378, 1479, page=3)
    made.numbers(184, 5000, 500, 4500, 1000, page=3)
    made.numbers(192, 21878, 2188, 17378, 4365, page=3)
    return made


def sfp28(*, calibrated_outside: bool = False) -> Plugged:
    """A 25G SR, by SFF-8472 revision 12.4; some leave calibration to the reader."""
    made = Plugged()
    made.write(0, bytes([0x03, 0x04, 0x07]))
    made.write(12, bytes([0xFF]))
    made.text(20, 16, "MAKER")
    made.write(37, bytes([0x00, 0x17, 0x6A]))
    made.text(40, 16, "MK-25SR")
    made.text(56, 4, "1.0")
    made.numbers(60, 850)
    made.text(68, 16, "MK25-7781")
    made.text(84, 8, "210323  ")
    made.write(92, bytes([0x40 | (0x10 if calibrated_outside else 0x20) | 0x08, 0xF0, 0x08]))
    made.numbers(0, *(round(each * 256) for each in (75, -5, 70, 0)), address=0x51)
    made.numbers(8, 36300, 29700, 34650, 31350, address=0x51)
    made.numbers(16, 7500, 1000, 6500, 1500, address=0x51)
    made.numbers(24, 11220, 1585, 8913, 1995, address=0x51)
    made.numbers(32, 12589, 631, 10000, 1000, address=0x51)
    if calibrated_outside:
        powers = struct.pack(">5f", 0.0, 0.0, 0.0, 0.5, 100.0)
        lines = struct.pack(">HhHhHhHh", 0x0180, -4, 0x0100, 9, 0x0100, -256, 0x0100, 120)
        made.write(56, powers + lines, address=0x51)
    made.numbers(96, round(41.5 * 256), 33210, 3180, 6310, 5012, address=0x51)
    made.numbers(112, 0x0000, address=0x51)
    made.numbers(116, 0x0040, address=0x51)  # too little light, a warning
    return made


def copper() -> Plugged:
    """A passive 100G copper cable: names, and no lasers."""
    made = Plugged()
    made.write(0, bytes([0x11, 0x07, 0x04]))
    made.write(128, bytes([0x11]))
    made.write(130, bytes([0x23]))
    made.write(146, bytes([2, 0xA0]))
    made.text(148, 16, "MAKER")
    made.text(168, 16, "MK-CR4-2M")
    made.text(184, 2, "A1")
    made.text(196, 16, "MKC0001")
    return made
