"""PyTorch's names of operations and types, mapped to ours: its dumps and profiles share them."""

from __future__ import annotations

from collector.contract.collective import Operation

NAME_CHARS = 128
"""How much of a name is read: the operation comes first, C++ templates follow."""

OPERATIONS = (
    # Parts of PyTorch's and NCCL's names in small letters without `_`; the first that fits.
    ("barrier", Operation.BARRIER),
    ("reducescatter", Operation.REDUCE_SCATTER),
    ("allreduce", Operation.ALL_REDUCE),
    ("allgather", Operation.ALL_GATHER),
    ("alltoall", Operation.ALL_TO_ALL),
    ("broadcast", Operation.BROADCAST),
    ("reduce", Operation.REDUCE),
    ("gather", Operation.GATHER),
    ("scatter", Operation.SCATTER),
    ("sendrecv", Operation.SEND_RECV),
    ("send", Operation.SEND),
    ("recv", Operation.RECV),
)
OF_OUTPUT = frozenset({Operation.REDUCE_SCATTER, Operation.SCATTER, Operation.RECV})
"""Operations whose size NCCL counts by what a rank gets; that of others by what it gives."""

ELEMENT_BYTES = {
    "Double": 8, "Long": 8, "ComplexFloat": 8, "ComplexDouble": 16, "ComplexHalf": 4,
    "Float": 4, "Int": 4, "UInt32": 4, "UInt64": 8, "Half": 2, "BFloat16": 2, "Short": 2,
    "UInt16": 2, "Char": 1, "Byte": 1, "Bool": 1,
}  # fmt: skip
"""c10::ScalarType by name."""


def find_operation(name: str) -> Operation:
    """The operation that a name of PyTorch or NCCL stands for.

    >>> find_operation("nccl:_all_gather_base").value, find_operation("ReduceScatter").value
    ('all_gather', 'reduce_scatter')
    >>> find_operation("nccl:send 0->3").value, find_operation("wait").value
    ('send', 'other')
    """
    key = name[:NAME_CHARS].lower().replace("_", "")
    for part, operation in OPERATIONS:
        if part in key:
            return operation
    return Operation.OTHER


def element_bytes(kind: str) -> int | None:
    """The bytes of one element of this type; None for a type that is not known.

    >>> element_bytes("BFloat16"), element_bytes("Float8_e4m3fn"), element_bytes("QInt8")
    (2, 1, None)
    """
    return 1 if kind.startswith("Float8") else ELEMENT_BYTES.get(kind)
