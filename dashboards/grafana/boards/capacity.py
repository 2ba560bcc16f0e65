"""Where there is room, and what fills up.

Links are grouped by tier: what a host's NIC sends, what a switch sends to hosts, and what switches
send to each other. Each direction of a cable is counted once, at its sender. There is no date
of "full": the load of a training fabric moves in steps, when a job is placed or grows, so the
trend is never drawn further ahead than it was looked back.
"""

from __future__ import annotations

from dashboards.grafana.expressions import HERE, PORT, PORT_RATE, per_port, utilisation
from dashboards.grafana.limits import PLAIN, UNEVEN_STEPS, fine_until
from dashboards.grafana.model import Board, Column, Draw, Panel, Query, Row, Unit
from dashboards.grafana.shapes import TO_THIS_SWITCH, asked, lines, named, number, table, value
from dashboards.grafana.variables import CLUSTER

FULL = 0.8
"""Knob capacity_average: the mean of a link above which it has no room."""
FULL_STEPS = fine_until(warn=FULL, bad=0.95)
"""And knob capacity_peak."""
UPLINK_STEPS = fine_until(warn=0.7)
"""Knob capacity_uplinks_average."""
HOTTEST = 15
DAY_SECONDS = 86_400

SWITCHES = f"fabric_switch_up{{{HERE}}}"
NEIGHBOURS = f'label_join({SWITCHES}, "peer_name", "", "host")'
UPLINKS = (
    f"(fabric_link_info{{{HERE}}} and on (cluster, host) {SWITCHES}"
    f" and on (cluster, peer_name) {NEIGHBOURS})"
)
"""Ports of switches whose neighbour is a switch, too."""


def of_nics(each: str) -> str:
    """Those of some ports that belong to hosts."""
    return f"({each} unless on (cluster, host) {SWITCHES})"


def to_hosts(each: str) -> str:
    """Those of some ports that are a switch's and lead to a host."""
    return f"({each} and on (cluster, host) {SWITCHES} unless on ({PORT}) {UPLINKS})"


def to_switches(each: str) -> str:
    """Those of some ports that lead from a switch to another."""
    return f"({each} and on ({PORT}) {UPLINKS})"


def from_leaves(each: str) -> str:
    """Those of some ports that lead from a switch with hosts to another: uplinks proper.

    A spine's ports lead to switches, too, and carry what their leaves are asked for.
    """
    return f"({to_switches(each)} and on (cluster, host) {to_hosts(UP_RATE)})"


UP_RATE = f"({PORT_RATE} unless on ({PORT}) fabric_port_state{{{HERE}}} < 4)"
"""Rates of ports that have a link; not every poller reports states."""
TIERS = {"NICs": of_nics, "switch to host": to_hosts, "switch to switch": to_switches}


def by_tier(aggregate: str, each: str) -> str:
    """A number for each tier, which becomes a label; ``aggregate`` as `avg` or `sum`."""
    return " or ".join(
        f'label_replace({aggregate}({belongs(each)}), "tier", "{tier}", "", "")'
        for tier, belongs in TIERS.items()
    )


SENDS = utilisation("transmit")
SENDS_NOW = utilisation("transmit", "5m")
BITS = f"{per_port('fabric_port_transmit_bytes_total')} * 8"
MEMORY = (
    f"fabric_gpu_memory_used_bytes{{{HERE}}}"
    f" / (fabric_gpu_memory_used_bytes{{{HERE}}} + fabric_gpu_memory_free_bytes{{{HERE}}})"
)
BUSY = f"fabric_gpu_utilization_ratio{{{HERE}}}"
POWER = f"fabric_gpu_power_watts{{{HERE}}}"
BURSTS = f"sum by (le) (rate(fabric_burst_utilisation_seconds_total{{{HERE}}}[$__rate_interval]))"


def quantiles(each: str) -> dict[str, str]:
    """What many things have in common: the middle, the top tenth, the top hundredth, the most."""
    return {
        "median": f"quantile(0.5, {each})",
        "90th percentile": f"quantile(0.9, {each})",
        "99th percentile": f"quantile(0.99, {each})",
        "most": f"max({each})",
    }


GLANCE = Row(
    title="Is there room?",
    panels=(
        number(
            "Links, mean",
            "Mean utilisation of all ports as they send, over 5 minutes. Training fills links in "
            "bursts, so a mean of 30 % may be all that a job can use. Colours from 80 % "
            "(capacity_average, a common planning limit) and 95 % on (capacity_peak): our policy.",
            f"avg({SENDS_NOW})",
            FULL_STEPS,
            Unit.RATIO,
            1,
        ),
        number(
            "Links, 99th percentile",
            "One port of a hundred sends more than this, over 5 minutes. Far above the mean: load "
            "is uneven, and moving jobs helps more than buying links. Colours from 80 % "
            "(capacity_average) and 95 % on (capacity_peak), policies of ours.",
            f"quantile(0.99, {SENDS_NOW})",
            FULL_STEPS,
            Unit.RATIO,
            1,
        ),
        number(
            "Links without room",
            "Ports that send more than 80 % of their rate, over 5 minutes: above that a queue "
            "forms at every small burst (capacity_average, a policy of ours). Usual: 0.",
            f"count({SENDS_NOW} > {FULL}) or 0 * count({SENDS_NOW})",
            fine_until(warn=1),
        ),
        number(
            "Uplinks, mean",
            "Mean utilisation of what switches with hosts send to other switches, over 5 minutes. "
            "From 70 % on balancing cannot help "
            "any more (capacity_uplinks_average, a policy of ours: flows never spread evenly). "
            "Not measured where no switch is read.",
            f"avg({from_leaves(SENDS_NOW)})",
            UPLINK_STEPS,
            Unit.RATIO,
            1,
        ),
        number(
            "GPUs busy",
            "Mean share of time in which GPUs ran a kernel. One that waits in a collective counts "
            "as busy: it shows how much is used, not how well.",
            f"avg({BUSY})",
            PLAIN,
            Unit.RATIO,
        ),
        number(
            "GPU memory used",
            "Memory in use of all that GPUs have, without what their driver keeps.",
            f"avg({MEMORY})",
            PLAIN,
            Unit.RATIO,
        ),
    ),
)

LINKS = Row(
    title="Links: how full, and how evenly",
    panels=(
        Panel(
            title="How many ports are how full",
            text="Utilisation of every port as it sends, over the last 5 minutes: how many ports "
            "there are at each level. One hump is an even load; a tail on the right is links "
            "that are full while others are empty. Colours from 80 % (capacity_average) and 95 % "
            "on (capacity_peak), policies of ours.",
            draw=Draw.SPREAD,
            queries=asked(SENDS_NOW),
            unit=Unit.RATIO,
            steps=FULL_STEPS,
        ),
        lines(
            "Utilisation of ports",
            "The middle port, the top tenth, the top hundredth and the fullest, as they send. "
            "Lines at 80 % (capacity_average, a common planning limit) and 95 % (capacity_peak), "
            "policies of ours.",
            quantiles(SENDS),
            Unit.RATIO,
            FULL_STEPS,
        ),
        lines(
            "Mean by tier",
            "Mean utilisation of what hosts' NICs send, of what switches send to hosts, and of "
            "the links between switches. Uplinks far above NICs: the fabric is oversubscribed; "
            "line at 80 % (capacity_average).",
            {"{{tier}}": by_tier("avg", SENDS)},
            Unit.RATIO,
            fine_until(warn=FULL),
        ),
        lines(
            "Room left by tier",
            "What the ports that have a link could send and do not, in bits a second, summed over "
            "each tier. What another job needs must fit into every tier that it crosses.",
            {"{{tier}}": by_tier("sum", f"({UP_RATE} - {BITS})")},
            Unit.BITS_PER_SECOND,
        ),
        lines(
            "Utilisation within milliseconds",
            "Of all time that fast sampled ports were looked at: half, 90 % and 99 % of it was "
            "at or below these utilisations. The mean hides this: a link that is full for a tenth "
            "of the time has a mean of 10 %. Only where an agent of ours samples bursts; line at "
            "95 % (capacity_peak).",
            {
                "half of the time": f"histogram_quantile(0.5, {BURSTS})",
                "90 % of the time": f"histogram_quantile(0.9, {BURSTS})",
                "99 % of the time": f"histogram_quantile(0.99, {BURSTS})",
            },
            Unit.RATIO,
            fine_until(warn=0.95),
        ),
        table(
            "Fullest ports",
            f"The {HOTTEST} ports that sent most over the range shown, by their rate; beside "
            "it the last 5 minutes. The same ports every day need more links or other jobs. "
            "Colours from 80 % (capacity_average) and 95 % on (capacity_peak), policies of ours.",
            asked(
                f"topk({HOTTEST}, {utilisation('transmit', '$__range')})",
                f"{SENDS_NOW} and topk({HOTTEST}, {utilisation('transmit', '$__range')})",
            ),
            (
                *named("host device port"),
                value("In the range", Unit.RATIO, FULL_STEPS),
                value("Now", Unit.RATIO, FULL_STEPS, of="B"),
            ),
            sort_by="In the range",
        ),
    ),
)

OVER = "[$__range:$__interval]"
TREND = Row(
    title="Where it goes",
    panels=(
        table(
            "Trend by tier",
            "Mean utilisation of each tier now and over the range shown; how much it changes "
            "in a day at the pace of that range; and where it would be after as long again, if "
            "it went on like this. Choose a range of days or weeks: within an hour it only shows "
            "whether a job has begun or ended. Further ahead is not shown, because load moves in "
            "steps, when jobs come and go. Colour from 80 % on (capacity_average).",
            asked(
                by_tier("avg", SENDS_NOW),
                by_tier("avg", utilisation("transmit", "$__range")),
                f"deriv(({by_tier('avg', SENDS)}){OVER}) * {DAY_SECONDS}",
                f"clamp(predict_linear(({by_tier('avg', SENDS)}){OVER}, $__range_s), 0, 1)",
            ),
            (
                Column(label="tier", title="Tier"),
                value("Now", Unit.RATIO),
                value("In the range", Unit.RATIO, of="B"),
                value("A day", Unit.RATIO, of="C"),
                value("After as long again", Unit.RATIO, fine_until(warn=FULL), of="D"),
            ),
            sort_by="Now",
        ),
        lines(
            "Traffic of all NICs",
            "What all hosts send together. Steps are jobs that begin and end; a slope over weeks "
            "is growth.",
            {"sent": f"sum({of_nics(BITS)})"},
            Unit.BITS_PER_SECOND,
        ),
    ),
)

DOWN_TO_UP = (
    f"sum by (cluster, host) ({to_hosts(UP_RATE)})"
    f" / on (cluster, host) sum by (cluster, host) ({to_switches(UP_RATE)})"
)
UPLINKS_SEND = from_leaves(SENDS)
BETWEEN = Row(
    title="Between tiers",
    panels=(
        Panel(
            title="Oversubscription of switches",
            text="What a switch could get from its hosts by what its uplinks carry, in rates of "
            "ports that are up. 1 is a fabric without bottleneck, which is usual for training; "
            "above it all hosts together are slower than each alone. It rises when an uplink is "
            "lost. Only switches that are read and have both. Colours above 1 and from 2 on, a "
            "policy of ours.",
            draw=Draw.BARS,
            queries=(Query(expr=DOWN_TO_UP, legend="{{host}}", is_instant=True),),
            steps=fine_until(look=1.001, warn=2),
            decimals=2,
            jump=TO_THIS_SWITCH,
            width=8,
        ),
        lines(
            "Uplinks of each switch",
            "Mean utilisation of a switch's uplinks as they send. From 70 % on the switch "
            "needs more of them, or fewer jobs across it (capacity_uplinks_average, a policy of "
            "ours; the rule pack warns after an hour).",
            {"{{host}}": f"avg by (cluster, host) ({UPLINKS_SEND})"},
            Unit.RATIO,
            UPLINK_STEPS,
            jump=TO_THIS_SWITCH,
            width=8,
        ),
        lines(
            "Unevenness of uplinks",
            "The busiest uplink of a switch by the mean of all of them. 1 is even; from 1.5 "
            "on hashing puts too many flows on one link (capacity_imbalance, a policy of ours). "
            "Only where the mean is above 20 %: below it is no harm (capacity_imbalance_load).",
            {
                "{{host}}": f"max by (cluster, host) ({UPLINKS_SEND})"
                f" / (avg by (cluster, host) ({UPLINKS_SEND}) > 0.2)"
            },
            steps=UNEVEN_STEPS,
            jump=TO_THIS_SWITCH,
            width=8,
            silence="No switch's uplinks are loaded above 20 %.",
        ),
    ),
)

GPUS = Row(
    title="GPUs",
    panels=(
        Panel(
            title="How many GPUs are how busy",
            text="Share of time in which a kernel ran, of every GPU: how many there are at each "
            "level. Usual are two humps: those of jobs near 100 %, and those without one at 0.",
            draw=Draw.SPREAD,
            queries=asked(BUSY),
            unit=Unit.RATIO,
            width=8,
        ),
        Panel(
            title="How many GPUs' memory is how full",
            text="Memory in use of what each GPU has, without what its driver keeps: how many "
            "GPUs there are at each level.",
            draw=Draw.SPREAD,
            queries=asked(MEMORY),
            unit=Unit.RATIO,
            width=8,
        ),
        Panel(
            title="How many GPUs draw how much power",
            text="Power of every GPU: how many there are at each level. Low power at full "
            "utilisation is a GPU that waits.",
            draw=Draw.SPREAD,
            queries=asked(POWER),
            unit=Unit.WATTS,
            width=8,
        ),
        lines(
            "GPUs busy",
            "Share of time in which a kernel ran: the mean, and the tenth of the GPUs that does "
            "least. The gap between them is what could be placed elsewhere.",
            {"mean": f"avg({BUSY})", "least tenth": f"quantile(0.1, {BUSY})"},
            Unit.RATIO,
            width=8,
        ),
        lines(
            "GPU memory used",
            "Memory in use of what GPUs have: the middle one, the top tenth and the fullest. A job "
            "that grows towards 100 % ends with an allocation error.",
            {
                "median": f"quantile(0.5, {MEMORY})",
                "90th percentile": f"quantile(0.9, {MEMORY})",
                "most": f"max({MEMORY})",
            },
            Unit.RATIO,
            width=8,
        ),
        lines(
            "Power of all GPUs",
            "What all GPUs draw together, for the room's power and cooling.",
            {"drawn": f"sum({POWER})"},
            Unit.WATTS,
            width=8,
        ),
    ),
)

BOARD = Board(
    title="Capacity",
    question="Where is room, and what fills up?",
    tags=("planning",),
    variables=(CLUSTER,),
    rows=(GLANCE, LINKS, TREND, BETWEEN, GPUS),
    since="now-24h",
    refresh="5m",
    has_incidents=False,
)
