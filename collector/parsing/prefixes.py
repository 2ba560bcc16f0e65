"""What launchers and log collectors put in front of every line of a program's output.

`srun --label` and `mpirun --tag-output` put the task there, `kubectl logs --prefix` and `stern` the
pod, the system's journal time, host and unit, container runtimes the time and the stream. A line of
NCCL is found wherever it begins; a table, a comment or an object is only found at the line's start.
"""

from __future__ import annotations

import re

LAYERS_MAX = 3
"""Prefixes of one line: a collector's in front of a launcher's."""
LINE_BYTES = 600
"""Where prefixes end, at the latest: names of pods have up to 253 characters."""

_TIME = rb"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:]{8}(?:[.,][0-9]{1,9})?(?:Z|[+\-][0-9]{2}:?[0-9]{2})?"
_PREFIX = re.compile(
    rb"(?:"
    rb" {0,6}[0-9]{1,7}: |"  # srun --label
    rb"\[pod/[\w.\-]{1,253}/[\w.\-]{1,253}\] |"  # kubectl logs --prefix
    rb"\[[\w,. \-]{1,64}\](?:<std\w{3}>)?:? ?|"  # mpirun --tag-output, torchrun
    rb"(?:[A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8}|" + _TIME + rb") "
    rb"[\w.\-]{1,128} [\w.\-/@]{1,128}\[[0-9]{1,10}\]: |"  # the journal
    + _TIME + rb" (?:std(?:out|err) [FP] )?|"  # a container runtime, or kubectl logs --timestamps
    rb"[\w.\-]{1,128} {1,32}\| |"  # docker compose
    rb"[a-z0-9][a-z0-9.]{0,100}-[a-z0-9.\-]{1,150} [a-z0-9][a-z0-9.\-]{0,100} (?:\xe2\x80\xba )?"
    rb")"
)  # fmt: skip
"""The last one is stern's: pod and container. Names of pods have a dash."""
_CONTENT = re.compile(rb"[#{\[ \t0-9]")
"""What a table, a comment or an object begins with. Other lines stay as they are: words and a colon
are no prefix."""


def strip_prefix(line: bytes) -> bytes:
    """The line without what stands in front of its content.

    >>> strip_prefix(b"0: # nThread 1"), strip_prefix(b"[1,0]<stdout>:   8   2  float")
    (b'# nThread 1', b'  8   2  float')
    >>> strip_prefix(b"nccl-test-worker-0 worker {}"), strip_prefix(b"0: node0:1:1 [0] NCCL INFO x")
    (b'{}', b'0: node0:1:1 [0] NCCL INFO x')
    """
    at = 0
    for _ in range(LAYERS_MAX):
        match = _PREFIX.match(line, at, LINE_BYTES)
        if match is None or match.end() == at:
            break
        at = match.end()
    return line[at:] if at and _CONTENT.match(line, at) else line


def strip_prefixes(lines: bytes) -> bytes:
    """The same for each of several lines."""
    return b"\n".join(map(strip_prefix, lines.split(b"\n")))
