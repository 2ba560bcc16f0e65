"""Queues that fill and drain within milliseconds, while averages look harmless.

*Phenomenon.* Many senders hit one port at once: an incast of a shuffle, of storage servers, of
parameter updates. Each burst is several times what the port carries, for a millisecond or two. Its
queue grows by megabytes and drains for longer than the burst lasted; the job's packets wait behind
it, or are marked, paused or dropped. Over a second the port is half empty.

*Signal.* A NIC receives clearly more than its ring has it send, its mean leaves room on the line
(`alerts.signals.inflow.FOREIGN_STEADY`), and yet a queue shows at its switch: marks at the NIC
beyond what is usual of it, or ports and NICs that the switch holds back, a deep queue, drops. A
port that is half empty and has a queue is filled in bursts, unless marks alone hold the queue in
check: few of others' packets have one, the switch holds no port back, and its queue is not deep
(`alerts.signals.inflow.MARKED_IN_CHECK`). That is `congestion`, whose senders go on and heed marks;
a burst is over before it hears of them. A watermark counts when it changes: it was reached between
two readings of the switch, and evidence says so and no more.

*Assumptions.* A ring's NIC receives what it sends, by the second. Steady traffic of such a mean
queues only while the job itself sends.

*Misses.* Where marks are not counted (InfiniBand, NICs that count CNPs alone) steady traffic below
four tenths of the line is taken for bursts: its port is right, and that it comes in bursts is not.
Bursts so small that senders are marked now and then only. Bursts of the job's own senders into one
of its NICs, and bursts into ports without counters of marks, waits or drops. Where agents sample
byte counters fast (`bursts`), those that they saw are added as evidence; by themselves they are no
fault, because every collective is a burst.

*Reference.* Microbursts are separated from congestion by utilisation, as switch makers do with peak
and mean of a queue; DCQCN marks from a queue of a few hundred kilobytes on, which a burst reaches
in tens of microseconds.
"""

from __future__ import annotations

from alerts.finding import Finding
from alerts.signals.inflow import inflow_findings
from alerts.window.model import Window
from collector.contract.verdict import Cause

NAME = "microburst"


def detect(window: Window) -> list[Finding]:
    return inflow_findings(window, detector=NAME, cause=Cause.MICROBURST, is_bursty=True)
