"""Names of the labels that we set on nodes, and what can be their value. Pure."""

from __future__ import annotations

import re
from hashlib import blake2b

PREFIX = "topology.fabricscope.io/"
RAILS_MAX = 16
"""Rails that get a label, the first ones: hosts have eight, and a label costs every watcher."""
OURS = frozenset(
    f"{PREFIX}{name}" for name in ("leaf", "pod", *(f"rail-{rail}" for rail in range(RAILS_MAX)))
)
VALUE_CHARS_MAX = 63
"""Of a label's value, as of Kubernetes."""
VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
"""What Kubernetes takes as one."""
DIGEST_BYTES = 4


def label_value(text: str) -> str:
    """A name as a label's value; one that cannot be keeps what can, and a digest of the whole.

    >>> label_value("leaf-1"), label_value("leaf 1/a")
    ('leaf-1', 'leaf-1-a-1d52e5a8')
    """
    if VALUE.fullmatch(text):
        return text
    digest = blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", text)
    kept = plain[: VALUE_CHARS_MAX - len(digest) - 1].strip("._-")
    return f"{kept}-{digest}" if kept else digest


def is_ours(label: str) -> bool:
    """Whether a label of a node is one that only we set."""
    return label in OURS
