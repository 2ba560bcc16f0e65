"""Cases in words, for tables of a terminal. Pure."""

from __future__ import annotations

from alerts.cases.compare import expected
from alerts.cases.model import Says, Told, Truth
from collector.contract.verdict import Cause, Culprit

NOTHING = "nothing"


def culprit_words(culprit: Culprit) -> str:
    """A culprit by all its names.

    >>> culprit_words(Culprit(job="job-1", rank=3, host="host-2", gpu=1))
    'job-1 rank 3, host-2 GPU 1'
    >>> culprit_words(Culprit(host="host-2", device="nic-1", port="1", switch="switch-1"))
    'host-2 nic-1/1, switch-1'
    """
    rank = "" if culprit.rank is None else f"rank {culprit.rank}"
    gpu = "" if culprit.gpu is None else f"GPU {culprit.gpu}"
    port = "/".join(filter(None, (culprit.device, culprit.port)))
    parts = (
        (culprit.job if rank else "", rank),
        (culprit.host, gpu, port),
        (culprit.switch, culprit.switch_port),
    )
    return ", ".join(filter(None, (" ".join(filter(None, part)) for part in parts)))


def verdict_words(cause: Cause, culprit: Culprit) -> str:
    named = culprit_words(culprit)
    return f"{cause}: {named}" if named else str(cause)


def told_words(told: Told | None) -> str:
    """What a version says, with how sure it is."""
    if told is None:
        return NOTHING
    return f"{verdict_words(told.cause, told.culprit)} ({told.confidence:.0%})"


def truth_words(truth: Truth) -> str:
    """What the operator said: what is right, or only what is not."""
    said = verdict_words(*expected(truth))
    return f"not {said}" if truth.says is Says.WRONG else said
