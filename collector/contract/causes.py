"""Why a job is slow or stuck: one entry a cause, with all that the product knows about it.

The judge, incidents, the health of hosts, the alerts that an incident holds back, the sentences of
verdicts, `fabricscope diagnose`, the pack of rules, the page and the documentation read their facts
about a cause here. A new cause is an entry, a detector that reports it, and a test of the detector.
"""

from __future__ import annotations

import enum
from typing import Self

import msgspec

from collector.contract.cause_facts import (
    BURST_EVENTS,
    CABLE_BAD,
    DAYS,
    DUMPS,
    ERRORS,
    GPU_BROKEN,
    HOURS,
    LINK_DOWN,
    LINK_EVENTS,
    LOGS,
    MISCONFIGURED,
    MOUNTS,
    NIC_BAD,
    NO_BLAME,
    ONE_END,
    PASSING_LOAD,
    PAUSES,
    PCIE_SLOW,
    PEAKS,
    QUEUES,
    RAS_EVENTS,
    STATES,
    SWITCH_BAD,
    TIMES,
    Absence,
    Blame,
    Family,
    Layer,
    Sought,
)
from collector.contract.cause_reasons import Reason


class ByReason(msgspec.Struct, frozen=True, kw_only=True):
    """What differs for one reason behind a cause; None: as without a reason."""

    depth: int | None = None
    blame: Blame | None = None
    does: tuple[str, str] | None = None
    """It states the reason, too: the sentence then has no `because`."""
    unnamed: str = ""
    """The same where no culprit is known; empty: as without a reason, with a `because`."""
    keeps_action: bool = False
    """The reason's advice does not suit the cause: the cause's own stands."""
    runbook: str = ""
    """Page of `docs/runbooks` for this cause with this reason; empty: `runbook_of` decides."""


class CauseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the table of causes."""

    name: str
    meaning: str
    """One sentence for people who meet the word the first time."""
    layer: Layer = Layer.NETWORK
    """Where it lies; UNKNOWN: the reason decides."""
    family: Family = Family.LINK
    depth: int | None = None
    """Its place between the root of trouble and the last symptom: what a lower number names can
    cause what a higher one names, hardly ever the other way round. Numbers are unique and leave
    gaps. None: it stands behind all that have one."""
    is_soft: bool = False
    """It may itself be the effect of others: reported only after those had time to appear."""
    spreads: bool = False
    """Back-pressure carries it through the fabric: while it is open, alerts about pauses, queues
    and bursts are its symptoms at every port."""
    comes_and_goes: bool = False
    """It pauses between two strokes: its incident stays open for longer without a sign."""
    stops_jobs: bool = False
    """A machine that shows it can be why a job stands still."""
    ends_jobs: bool = False
    """Its job is over, or its ranks will never meet again: there is nothing left to measure."""

    looks_for: Sought
    absence: Absence | None = None
    blame: Blame

    does: tuple[str, str]
    """What one culprit does, and what several do."""
    unnamed: str
    """The sentence where there is no culprit, or only the job that suffers."""
    alert: str = ""
    """What the culprit does, in the rule that pages for an incident; empty: as one `does`."""
    action: str
    """What to do where the reason is not known; the names in braces are those of
    `alerts.judge.words.action`."""
    afterwards: str = ""
    runbook: str
    """Page of `docs/runbooks`."""
    colour: str
    """On the page: a name of its style sheet, without the dashes."""
    drawn_by: str = ""
    """What it shows in on the page's drawing of the fabric; empty: in what links carry."""
    by_reason: dict[Reason, ByReason] = {}

    def __post_init__(self) -> None:
        if not self.alert:
            msgspec.structs.force_setattr(self, "alert", self.does[0])


class Cause(enum.StrEnum):
    """Why a job is slow or stuck. Closed: dashboards, rules and schedulers compare it."""

    facts: CauseFacts

    def __new__(cls, facts: CauseFacts | str) -> Self:
        assert isinstance(facts, CauseFacts)  # a text finds a member, and makes none
        cause = str.__new__(cls, facts.name)
        cause._value_ = facts.name
        cause.facts = facts
        return cause

    STRAGGLER = CauseFacts(
        name="straggler",
        meaning="A rank comes late to its collectives; the network only waits for it.",
        layer=Layer.COMPUTE,
        family=Family.RANK,
        looks_for=Sought("late ranks", (TIMES,)),
        # It is late for an unknown reason: as often the program as the machine.
        blame=Blame(host=0.5, gpu=0.5, half_life_s=6 * HOURS),
        does=("comes late to its collectives", "come late to their collectives"),
        unnamed="Ranks wait for one that comes late; which one is not known",
        action=(
            "While it lasts, compare {host} with a peer: GPU clocks (`nvidia-smi dmon -s "
            "pucvt`) and CPU (`vmstat 1`). If they are equal, profile {who} for a few steps. "
            "If in doubt put another host in its place: lateness that stays with the rank is "
            "the program's."
        ),
        runbook="late-rank",
        colour="s2",
        by_reason={
            Reason.GPU_THROTTLED: ByReason(blame=Blame(host=0.8, gpu=0.8, half_life_s=2 * HOURS)),
            Reason.GPU_ERROR: ByReason(blame=GPU_BROKEN),
            Reason.HOST_STALL: ByReason(blame=Blame(host=0.7, half_life_s=1 * HOURS)),
            Reason.STORAGE: ByReason(blame=Blame(host=0.5, half_life_s=1 * HOURS)),
            # Storage is shared: which host waits for it today is chance.
            Reason.DATA_LOADING: ByReason(blame=Blame(host=0.2, half_life_s=1 * HOURS)),
            Reason.PCIE: ByReason(blame=PCIE_SLOW, runbook="gpu-pcie"),
            Reason.SCALE_UP: ByReason(
                blame=GPU_BROKEN,
                does=(
                    "is slow over NVLink or xGMI, inside the host",
                    "are slow over NVLink or xGMI, inside their hosts",
                ),
            ),
            Reason.IMBALANCE: ByReason(
                blame=NO_BLAME,
                does=("has more work than its peers", "have more work than the other stages"),
                unnamed=(
                    "The work is uneven, and all wait for the rank with most of it; this evidence "
                    "names no culprit"
                ),
            ),
        },
    )
    SLOW_LINK = CauseFacts(
        name="slow_link",
        meaning="Bytes take longer over one link, NIC or port than over its peers.",
        looks_for=Sought("slow links", (TIMES,)),
        blame=ONE_END,
        does=("moves bytes too slowly", "move bytes too slowly"),
        unnamed="Bytes move too slowly; over which link is not known",
        action=(
            "{measure}. If it is slower than that: {remove_lower}, swap the cable first, then "
            "the NIC."
        ),
        runbook="link-below-its-rate",
        colour="s1",
        by_reason={
            Reason.NIC: ByReason(blame=NIC_BAD),
            Reason.PCIE: ByReason(depth=50, blame=PCIE_SLOW, runbook="nic-pcie-backpressure"),
            Reason.RATE_DOWNGRADE: ByReason(
                depth=40, blame=Blame(host=0.8, device=0.5, link=1.0, half_life_s=1 * DAYS)
            ),
            Reason.CABLE: ByReason(blame=CABLE_BAD, runbook="bit-errors"),
            Reason.SWITCH: ByReason(blame=SWITCH_BAD),
            Reason.ROUTING: ByReason(blame=PASSING_LOAD),
            Reason.NEIGHBOUR: ByReason(blame=PASSING_LOAD, runbook="congested-path"),
            Reason.CONFIGURATION: ByReason(blame=MISCONFIGURED),
        },
    )
    LOSSY_LINK = CauseFacts(
        name="lossy_link",
        meaning="Packets are lost or damaged, and sent again.",
        depth=70,
        comes_and_goes=True,
        looks_for=Sought("lossy links", (ERRORS,)),
        absence=Absence(
            "ports",
            ("symbol_errors_total", "receive_errors_total", "sequence_naks_total"),
            "no port counted damaged or repeated packets beyond its limit",
        ),
        blame=Blame(host=0.5, device=0.5, link=0.9, half_life_s=1 * DAYS),
        does=("loses or damages packets", "lose or damage packets"),
        unnamed="Packets are lost or damaged; on which link is not known",
        action=(
            "{inspect}: which error counts grow, at both ends? {remove}, clean and reseat the "
            "connectors or swap the cable; the counts must then stand still under load."
        ),
        runbook="packet-loss",
        colour="s4",
        drawn_by="errors",
        by_reason={
            Reason.NIC: ByReason(blame=NIC_BAD),
            Reason.PCIE: ByReason(blame=PCIE_SLOW, runbook="nic-pcie-backpressure"),
            Reason.CABLE: ByReason(depth=30, blame=CABLE_BAD, runbook="bit-errors"),
            Reason.SWITCH: ByReason(depth=60, blame=SWITCH_BAD),
            Reason.NEIGHBOUR: ByReason(blame=PASSING_LOAD, runbook="congested-path"),
            Reason.ROUTING: ByReason(blame=PASSING_LOAD),
            Reason.CONFIGURATION: ByReason(blame=MISCONFIGURED, runbook="lossless-class-drops"),
        },
    )
    SLOW_STORAGE = CauseFacts(
        name="slow_storage",
        meaning="A file server answers slowly: all ranks wait for data, or for their checkpoint.",
        # Of all, not of one host: whose team that is the table cannot know.
        layer=Layer.UNKNOWN,
        family=Family.RANK,
        looks_for=Sought("slow file servers", (MOUNTS,)),
        # Every host that mounts it suffers alike, and another host would as well.
        blame=NO_BLAME,
        does=(
            "answers slowly, and all ranks wait for it",
            "answer slowly, and all ranks wait for them",
        ),
        unnamed="All ranks wait for storage; for which is not known",
        alert="answers slowly: all ranks wait for data or for their checkpoint",
        action=(
            "Leave the hosts alone: all see it. On {server} look at load, disks and network "
            "(`nfsstat -s`, `iostat -x 1`), and at who else uses {storage}; on any host "
            "`nfsiostat 1` must show its usual response again. Until then read from a copy, or "
            "save checkpoints less often."
        ),
        runbook="slow-storage",
        colour="s11",
    )
    LINK_FLAP = CauseFacts(
        name="link_flap",
        meaning="A link goes down and comes back.",
        depth=20,
        comes_and_goes=True,
        stops_jobs=True,
        looks_for=Sought("links that went down", (STATES, LINK_EVENTS)),
        absence=Absence(
            "ports", ("state", "link_downed_total", "up"), "no link of the job's hosts went down"
        ),
        blame=LINK_DOWN,
        does=("goes down and comes back", "go down and come back"),
        unnamed="A link goes down and comes back; which one is not known",
        alert="has a link that is down or flaps",
        action=(
            "{inspect}: when did it go down, and does it again? {remove}, reseat or swap the "
            "cable and the transceivers; let it back after an hour without a flap."
        ),
        runbook="link-flaps",
        colour="s8",
        drawn_by="errors",
        by_reason={
            Reason.SWITCH: ByReason(blame=SWITCH_BAD),
            Reason.LINK_DOWN: ByReason(does=("is down", "are down")),
        },
    )
    PAUSE_STORM = CauseFacts(
        name="pause_storm",
        meaning="A receiver that cannot keep up stops its senders, and they stop theirs.",
        depth=80,
        is_soft=True,
        spreads=True,
        comes_and_goes=True,
        looks_for=Sought("pause storms", (PAUSES,)),
        absence=Absence(
            "ports",
            (
                "receive_pause_frames_total",
                "transmit_wait_seconds_total",
                "transmit_wait_ticks_total",
            ),
            "no receiver held back its senders by itself",
        ),
        # Its root: a receiver that cannot keep up stops all that send to it.
        blame=Blame(host=0.9, device=0.9, link=0.5, half_life_s=6 * HOURS),
        does=("makes its senders pause", "make their senders pause"),
        unnamed="Senders are paused; which receiver pauses them is not known",
        action=(
            "{inspect}: does it still send pause frames? {remove}; if pausing stops "
            "everywhere, look at its PCIe slot and at what its host does with the memory that "
            "the NIC writes to."
        ),
        runbook="pause-root",
        colour="s5",
        drawn_by="pause",
        by_reason={
            Reason.NIC: ByReason(keeps_action=True),
            Reason.SWITCH: ByReason(blame=SWITCH_BAD),
            Reason.NEIGHBOUR: ByReason(blame=PASSING_LOAD),
        },
    )
    CONGESTION = CauseFacts(
        name="congestion",
        meaning="More is sent over a link than it carries, for longer than a burst.",
        depth=100,
        is_soft=True,
        spreads=True,
        comes_and_goes=True,
        looks_for=Sought("congested links", (QUEUES,)),
        absence=Absence(
            "ports",
            (
                "receive_ecn_marked_packets_total",
                "transmit_wait_seconds_total",
                "queue_depth_bytes",
            ),
            "no queue stood longer than usual",
        ),
        blame=PASSING_LOAD,
        does=("is sent more than it carries", "are sent more than they carry"),
        unnamed="More is sent than a link carries; over which one is not known",
        action=(
            "Find out whose flows meet there: compare the bytes that come in by each port of "
            "{switch}. Spread them, or slow them down earlier (ECN thresholds)."
        ),
        runbook="congested-path",
        colour="s6",
        drawn_by="pause",
        by_reason={Reason.ROUTING: ByReason(depth=90)},
    )
    MICROBURST = CauseFacts(
        name="microburst",
        meaning="Queues fill and drain within milliseconds; averages look harmless.",
        depth=110,
        is_soft=True,
        spreads=True,
        comes_and_goes=True,
        looks_for=Sought("microbursts", (PEAKS, BURST_EVENTS)),
        blame=PASSING_LOAD,
        does=(
            "is hit by bursts that fill its queue within milliseconds",
            "are hit by bursts that fill their queues within milliseconds",
        ),
        unnamed="Queues fill within milliseconds; at which port is not known",
        alert="is hit by bursts",
        action=(
            "Sample queue depth and bytes of {who} faster than once in 10 ms to see who sends "
            "at once. Spread the senders over time, or give the queue more buffer and an "
            "earlier ECN mark."
        ),
        runbook="microbursts",
        colour="s7",
        drawn_by="pause",
    )
    HANG = CauseFacts(
        name="hang",
        meaning="Nothing moves any more, and a culprit can be named.",
        layer=Layer.UNKNOWN,
        family=Family.STUCK,
        stops_jobs=True,
        looks_for=Sought("ranks that hold up a hang", (DUMPS, RAS_EVENTS)),
        blame=Blame(host=0.5, gpu=0.5, half_life_s=12 * HOURS),
        does=("holds up the job", "hold up the job"),
        unnamed="Nothing moves any more; which rank holds it up is not known",
        alert="holds up the job: nothing moves",
        action=(
            "Before anything is restarted, take Flight Recorder dumps of all ranks, and run "
            "`py-spy dump --pid PID` for {who}."
        ),
        afterwards=("Then restart the job from its last checkpoint, without what was at fault."),
        runbook="job-stopped",
        colour="bad",
        by_reason={
            Reason.GPU_ERROR: ByReason(depth=10, blame=GPU_BROKEN),
            Reason.NIC_FAILED: ByReason(depth=15, blame=NIC_BAD),
            Reason.LINK_DOWN: ByReason(blame=LINK_DOWN),
            Reason.CABLE: ByReason(blame=CABLE_BAD),
            Reason.SWITCH: ByReason(blame=SWITCH_BAD),
            Reason.PCIE: ByReason(blame=PCIE_SLOW),
            # The rank is elsewhere in its program, mostly: a bug follows the job, not the host.
            Reason.NOT_LAUNCHED: ByReason(
                blame=Blame(host=0.3, gpu=0.3, half_life_s=6 * HOURS),
                does=(
                    "never launched a collective that the others wait in",
                    "never launched a collective that the others wait in",
                ),
            ),
            Reason.NOT_FINISHED: ByReason(
                does=(
                    "launched a collective and never finished it",
                    "launched a collective and never finished it",
                )
            ),
        },
    )
    STALL = CauseFacts(
        name="stall",
        meaning="Nothing moved for a while, and no culprit can be named.",
        layer=Layer.UNKNOWN,
        family=Family.STUCK,
        looks_for=Sought("stalls", (TIMES,)),
        blame=NO_BLAME,
        does=("stood still", "stood still"),
        unnamed="Nothing moved for a while; this evidence names no culprit",
        alert="Nothing moved for a while, and no culprit can be named",
        action=(
            "Look for what all ranks share: storage, the scheduler, the fabric as a whole. Run "
            "with TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1: next "
            "time there is evidence of who did not come."
        ),
        runbook="job-stopped",
        colour="soft",
    )
    CRASH = CauseFacts(
        name="crash",
        meaning="A process of the job ended before its work was done, and the job with it.",
        layer=Layer.UNKNOWN,
        family=Family.STUCK,
        stops_jobs=True,
        ends_jobs=True,
        looks_for=Sought("processes that died", (LOGS,)),
        # A bug or a full memory follows the job, not the host.
        blame=Blame(host=0.2, gpu=0.2, half_life_s=6 * HOURS),
        does=("died first, and the job with it", "died first, and the job with them"),
        unnamed="The job died; this evidence names no culprit",
        alert="died, and the job with it",
        action=(
            "Read the first lines of the evidence, and around them in the logs that they name. If "
            "some ranks' logs are missing, add them and run this again: who died first may be "
            "there."
        ),
        runbook="job-stopped",
        colour="s9",
        by_reason={
            Reason.GPU_ERROR: ByReason(
                blame=GPU_BROKEN,
                unnamed="The job died: a GPU reported errors; which rank is not known",
            ),
            Reason.GPU_MEMORY: ByReason(
                blame=NO_BLAME,
                does=("died first: its GPU memory ran out", "died first: their GPU memory ran out"),
                unnamed="The job died: GPU memory ran out; this evidence names no culprit",
            ),
            Reason.HOST_MEMORY: ByReason(
                unnamed="The job died: a host's memory ran out; this evidence names no culprit"
            ),
            Reason.KILLED: ByReason(
                does=(
                    "was killed, and the job died with it",
                    "were killed, and the job died with them",
                ),
                unnamed="The job died: processes were killed; this evidence names no culprit",
            ),
            Reason.PROGRAM: ByReason(
                blame=NO_BLAME,
                does=(
                    "died first, by an error of its program",
                    "died first, by an error of their program",
                ),
                unnamed="The job died by an error of its program; this evidence names no culprit",
            ),
            Reason.CONNECTION_LOST: ByReason(
                does=("is whom the others lost before the job died",) * 2,
                unnamed=(
                    "The job died: ranks lost the connection to a peer; this evidence names no "
                    "culprit"
                ),
            ),
            Reason.TIMED_OUT: ByReason(
                unnamed="The job died: a collective timed out; this evidence names no culprit"
            ),
            Reason.HOST_LOST: ByReason(
                blame=Blame(host=1.0, half_life_s=3 * DAYS),
                does=("failed, and the job died with it", "failed, and the job died with them"),
            ),
            Reason.ENDED: ByReason(
                blame=NO_BLAME,
                unnamed="Its scheduler or a user ended the job; this evidence names no culprit",
            ),
        },
    )
    MISMATCH = CauseFacts(
        name="mismatch",
        meaning="Ranks of one group call different operations under the same number.",
        layer=Layer.COMPUTE,
        family=Family.STUCK,
        ends_jobs=True,
        looks_for=Sought("mismatched collectives", (DUMPS,)),
        blame=NO_BLAME,
        does=(
            "called another operation than its group",
            "called another operation than their group",
        ),
        unnamed="Ranks of one group call different operations; which of them is wrong is not known",
        action=(
            "Compare the two places in the program that the evidence names: which condition lets "
            "{who} take another way (a branch on data, on the rank, an exception that was caught, "
            "one batch more)? Results since then are wrong even where no rank waits: go back to a "
            "checkpoint from before."
        ),
        runbook="job-stopped",
        colour="s10",
    )


# Questions to the table --------------------------------------------------------------------------


def by_reason(cause: Cause, reason: Reason) -> ByReason:
    return cause.facts.by_reason.get(reason, NO_DIFFERENCE)


NO_DIFFERENCE = ByReason()


def runbook_of(cause: Cause, reason: Reason) -> str:
    """The page of `docs/runbooks` to read: of both together, of the reason, or of the cause."""
    return by_reason(cause, reason).runbook or reason.facts.runbook or cause.facts.runbook


def title(word: str) -> str:
    """A name of the table as people write it.

    >>> title("slow_link")
    'Slow link'
    """
    return word.replace("_", " ").capitalize()


class CauseWords(msgspec.Struct, frozen=True, kw_only=True):
    """A cause as the page shows it."""

    name: str
    title: str
    meaning: str
    layer: Layer
    family: Family
    spreads: bool
    needs: tuple[str, ...]
    """Data without which `diagnose` cannot look for it: any one of these."""
    runbook: str
    runbooks: dict[str, str]
    """By reason, where this cause with that reason has a page of its own."""
    colour: str
    drawn_by: str


class ReasonWords(msgspec.Struct, frozen=True, kw_only=True):
    """A reason as the page shows it; an empty runbook: that of the cause."""

    name: str
    title: str
    layer: Layer
    runbook: str


class CauseTable(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the tables that the page and other clients need."""

    causes: tuple[CauseWords, ...]
    reasons: tuple[ReasonWords, ...]


def cause_table() -> CauseTable:
    return CauseTable(
        causes=tuple(
            CauseWords(
                name=cause.value,
                title=title(cause),
                meaning=cause.facts.meaning,
                layer=cause.facts.layer,
                family=cause.facts.family,
                spreads=cause.facts.spreads,
                needs=tuple(dict.fromkeys(need.title for need in cause.facts.looks_for.needs)),
                runbook=cause.facts.runbook,
                runbooks={
                    reason.value: own.runbook
                    for reason, own in cause.facts.by_reason.items()
                    if own.runbook
                },
                colour=cause.facts.colour,
                drawn_by=cause.facts.drawn_by,
            )
            for cause in Cause
        ),
        reasons=tuple(
            ReasonWords(
                name=reason.value,
                title=reason.facts.title,
                layer=reason.facts.layer,
                runbook=reason.facts.runbook,
            )
            for reason in Reason
        ),
    )
