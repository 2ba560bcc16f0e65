"""What an unsure verdict needs: its suspects, and the one measurement that would decide. Pure.

The kinds are a closed table: what each decides between, who can serve it, and how a person collects
it where no part of the service can. A kind that nothing serves is named to the operator and never
requested. A new kind is a row here; what makes it available is a name in ``served_by``.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

import msgspec

from collector.contract.culprit import Culprit
from collector.contract.figures import share as percentage


class MeasurementKind(enum.StrEnum):
    """What can be measured, on request, to decide between suspects."""

    BURST_CAPTURE = "burst_capture"
    FLIGHT_RECORDER = "flight_recorder"
    RAS_STATUS = "ras_status"
    PROBE = "probe"
    PROFILE = "profile"
    RANK_FILES = "rank_files"

    @property
    def facts(self) -> KindFacts:
        return KINDS[self]


class KindFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table of kinds."""

    title: str
    """In the middle of a sentence: asked for …"""
    decides: str
    """Between what it decides."""
    served_by: str = ""
    """Who takes the request: a part of the product. Empty: no part does yet, a person collects."""
    by_hand: str
    """How a person collects it; {rank} stands for a rank's number."""
    costs_job: bool = False
    """Whether taking it may hold up the job that it is about: such a kind is off by default."""

    @property
    def is_served(self) -> bool:
        return bool(self.served_by)


AGENT_SAMPLER: Final = "agent: fast sampler"
AGENT_RAS: Final = "agent: nccl_ras"
RAS_DEVICE: Final = "nccl_ras"
"""What a request to an agent names in place of a device, to have NCCL's RAS asked. An agent that
does not know it looks for a NIC of this name, and refuses."""

KINDS: Final = {
    MeasurementKind.BURST_CAPTURE: KindFacts(
        title="a burst capture",
        decides="NICs that a job's times accuse alike",
        served_by=AGENT_SAMPLER,
        by_hand=(
            "`POST /v1/agents/HOST/capture` to a service whose agents sample these ports (`bursts`)"
        ),
    ),
    MeasurementKind.FLIGHT_RECORDER: KindFacts(
        title="Flight Recorder dumps",
        decides="ranks of a job that stands",
        # The dump is taken by a thread of the training process, from its own buffer.
        costs_job=True,
        by_hand=(
            'on the host of each rank, `echo dump > "${{TORCH_NCCL_DEBUG_INFO_PIPE_FILE}}{rank}'
            '.pipe"` (PyTorch makes this pipe if the job was started with the variable and with '
            "TORCH_NCCL_TRACE_BUFFER_SIZE above 0)"
        ),
    ),
    MeasurementKind.RAS_STATUS: KindFacts(
        title="NCCL's RAS status",
        decides="ranks that died, ranks that wait and a network that does not answer",
        served_by=AGENT_RAS,
        by_hand="on a host of the job, `ncclras -v` (NCCL 2.24 and later)",
    ),
    MeasurementKind.PROBE: KindFacts(
        title="a probe between two hosts",
        decides="the ends of a slow link",
        by_hand="`ib_write_bw`, or `iperf3 -P 8` without RDMA, between the named hosts",
    ),
    MeasurementKind.PROFILE: KindFacts(
        title="a profiler trace",
        decides="a rank that computes longer and one that waits for its host",
        costs_job=True,
        by_hand="`torch.profiler` over a few steps of the named ranks",
    ),
    MeasurementKind.RANK_FILES: KindFacts(
        title="the files of ranks that were not read",
        decides="the accused rank and the ranks that were not read",
        by_hand="copy them beside the others and diagnose again",
    ),
}  # fmt: skip


def kind_requested(devices: Sequence[str]) -> MeasurementKind:
    """What a request to an agent asks for, by the devices that it names."""
    is_ras = list(devices) == [RAS_DEVICE]
    return MeasurementKind.RAS_STATUS if is_ras else MeasurementKind.BURST_CAPTURE


class Suspected(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part that explains the verdict as well, and what would prove it to be the culprit."""

    culprit: Culprit
    share: float
    """Of all suspicion, 0 to 1."""
    name: str = ""
    """In words."""
    proof: str = ""
    """The answer of the measurement that would name it; a sentence."""


class Undecided(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a verdict is unsure, in terms of what to do about it."""

    kind: MeasurementKind
    text: str
    """What to measure and where; a sentence."""
    suspects: tuple[Suspected, ...] = ()
    """Two or three, the most likely first; one, or none, where the evidence names no more."""
    at: tuple[Culprit, ...] = ()
    """Where to measure: the suspects, and behind them a yardstick that is none."""
    otherwise: str = ""
    """What an answer that decides nothing would mean; a sentence."""
    collect: str = ""
    """How a person collects it."""

    @property
    def is_served(self) -> bool:
        return self.kind.facts.is_served


# In words ----------------------------------------------------------------------------------------


def undecided_words(undecided: Undecided) -> str:
    """Who it may be, what would decide, and how a person collects it; two sentences or three.

    >>> a, b = (Suspected(culprit=Culprit(host=one), share=0.5, name=one) for one in "ab")
    >>> undecided_words(Undecided(kind=MeasurementKind.PROBE, text="Measure.", suspects=(a, b)))
    'a (50 %) or b (50 %). What would decide: measure.'
    """
    who = " or ".join(f"{one.name} ({percentage(one.share)})" for one in undecided.suspects)
    decide = f"What would decide: {undecided.text[:1].lower()}{undecided.text[1:]}"
    return " ".join(filter(None, (f"{who}." if who else "", decide, hand_words(undecided))))


def undecided_lines(undecided: Undecided) -> list[str]:
    """Lines of a report: each suspect and its proof, what would decide, and what if it does not."""
    who = [
        f"{one.name} ({percentage(one.share)}). {one.proof}".rstrip() for one in undecided.suspects
    ]
    decide = " ".join(filter(None, (undecided.text, hand_words(undecided))))
    return [*who, f"What would decide: {decide}", *filter(None, (undecided.otherwise,))]


def hand_words(undecided: Undecided) -> str:
    return f"By hand: {undecided.collect}." if undecided.collect else ""
