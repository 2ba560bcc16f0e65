"""Where there is room, and what fills up.

Links are grouped by tier: what a host's NIC sends, what a switch sends to hosts, and what switches
send to each other. Each direction of a cable is counted once, at its sender. There is no date
of "full": the load of a training fabric moves in steps, when a job is placed or grows, so the
trend is never drawn further ahead than it was looked back.
"""

from __future__ import annotations

from dashboards.grafana import jumps, limits
from dashboards.grafana.expressions import HERE, PORT, PORT_RATE, gauge, utilisation
from dashboards.grafana.limits import fine_until
from dashboards.grafana.model import Unit
from dashboards.grafana.shapes import bars, board, lines, number, spread, table, thirds, titled
from dashboards.grafana.variables import CLUSTER

FULL = 0.8
"""Knob capacity_average: the mean of a link above which it has no room."""
UPLINKS_FULL = fine_until(Unit.RATIO, warn=0.7)
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


def to_hosts(each: str) -> str:
    return f"({each} and on (cluster, host) {SWITCHES} unless on ({PORT}) {UPLINKS})"


def to_switches(each: str) -> str:
    return f"({each} and on ({PORT}) {UPLINKS})"


def from_leaves(each: str) -> str:
    """Those of some ports that lead from a switch with hosts to another: uplinks proper.

    A spine's ports lead to switches, too, and carry what their leaves are asked for.
    """
    return f"({to_switches(each)} and on (cluster, host) {to_hosts(UP_RATE)})"


UP_RATE = f"({PORT_RATE} unless on ({PORT}) fabric_port_state{{{HERE}}} < 4)"
"""Rates of ports that have a link; not every poller reports states."""


def by_tier(recorded: str) -> str:
    """What the rules record of each tier, all clusters together."""
    return f"sum by (tier) (tier:fabric_link_{recorded}{{{HERE}}})"


def over_range(recorded: str) -> str:
    return f"sum by (tier) (avg_over_time(tier:fabric_link_{recorded}{{{HERE}}}[$__range]))"


UTILISATION = "transmit_utilisation5m"
MEAN_BY_TIER = f"{by_tier(f'{UTILISATION}:sum')} / {by_tier(f'{UTILISATION}:count')}"
SENDS_NOW = utilisation("transmit", "5m")
LINKS_SEND = f"link:fabric_link_transmit:utilisation5m{{{HERE}}}"
FULLEST = f"topk({HOTTEST}, max by ({PORT}) (avg_over_time({LINKS_SEND}[$__range])))"
MEMORY = (
    f"1 / (1 + fabric_gpu_memory_free_bytes{{{HERE}}} / fabric_gpu_memory_used_bytes{{{HERE}}})"
)
"""What is used of what is used and free; so, because each of the two is read once."""
BUSY = f"fabric_gpu_utilization_ratio{{{HERE}}}"
POWER = f"fabric_gpu_power_watts{{{HERE}}}"
BURSTS = f"sum by (le) (cluster:fabric_burst_utilisation_seconds:rate5m{{{HERE}}})"
NO_RULES = "No link is read, or no rules run: they record what is shown here."


def quantile_of_links(quantile: str) -> str:
    recorded = "cluster:fabric_link_transmit_utilisation5m:quantile"
    return f'max({recorded}{{{HERE}, quantile="{quantile}"}})'


GLANCE = {
    "Links, mean": number.of(limits.NO_ROOM, decimals=1)(
        "Mean utilisation of all ports as they send, over 5 minutes. Training fills links in "
        "bursts, so a mean of 30 % may be all that a job can use. Colours from 80 % "
        "(capacity_average, a common planning limit) and 95 % on (capacity_peak): our policy.",
        f"avg({SENDS_NOW})",
    ),
    "Links, 99th percentile": number.of(limits.NO_ROOM, decimals=1)(
        "One port of a hundred sends more than this, over 5 minutes. Far above the mean: load is "
        "uneven, and moving jobs helps more than buying links. Colours from 80 % "
        "(capacity_average) and 95 % on (capacity_peak), policies of ours.",
        f"quantile(0.99, {SENDS_NOW})",
    ),
    "Links without room": number.of(fine_until(warn=1))(
        "Ports that send more than 80 % of their rate, over 5 minutes: above that a queue forms at "
        "every small burst (capacity_average, a policy of ours). Usual: 0.",
        f"count({SENDS_NOW} > {FULL}) or 0 * count({SENDS_NOW})",
    ),
    "Uplinks, mean": number.of(UPLINKS_FULL, decimals=1)(
        "Mean utilisation of what switches with hosts send to other switches, over 5 minutes. From "
        "70 % on balancing cannot help any more (capacity_uplinks_average, a policy of ours: flows "
        "never spread evenly). Not measured where no switch is read.",
        f"avg({from_leaves(SENDS_NOW)})",
    ),
    "GPUs busy": number.of(Unit.RATIO)(
        "Mean share of time in which GPUs ran a kernel. One that waits in a collective counts as "
        "busy: it shows how much is used, not how well.",
        f"avg({BUSY})",
    ),
    "GPU memory used": number.of(Unit.RATIO)(
        "Memory in use of all that GPUs have, without what their driver keeps.", f"avg({MEMORY})"
    ),
}

LINKS = {
    "How many ports are how full": spread.of(limits.NO_ROOM)(
        "Utilisation of every port as it sends, over the last 5 minutes: how many ports there are "
        "at each level. One hump is an even load; a tail on the right is links that are full while "
        "others are empty. Colours from 80 % (capacity_average) and 95 % on (capacity_peak), "
        "policies of ours.",
        {"": SENDS_NOW},
    ),
    "Utilisation of ports": lines.of(limits.NO_ROOM, silence=NO_RULES)(
        "The middle port, the top tenth, the top hundredth and the fullest, as they send over 5 "
        "minutes; of several clusters, of the one that sends more. Lines at 80 % "
        "(capacity_average, a common planning limit) and 95 % (capacity_peak), policies of ours.",
        {
            "median": quantile_of_links("0.5"),
            "90th percentile": quantile_of_links("0.9"),
            "99th percentile": quantile_of_links("0.99"),
            "most": quantile_of_links("1"),
        },
    ),
    "Mean by tier": lines.of(fine_until(Unit.RATIO, warn=FULL), silence=NO_RULES)(
        "Mean utilisation of what hosts' NICs send, of what switches send to hosts, and of the "
        "links between switches. Uplinks far above NICs: the fabric is oversubscribed; line at "
        "80 % (capacity_average).",
        {"{{tier}}": MEAN_BY_TIER},
    ),
    "Room left by tier": lines.of(Unit.BITS_PER_SECOND, silence=NO_RULES)(
        "What the ports that have a link could send and do not, in bits a second, summed over each "
        "tier. What another job needs must fit into every tier that it crosses.",
        {"{{tier}}": f"{by_tier('rate_bits:sum')} - {by_tier('transmit_bits:rate5m')}"},
    ),
    "Utilisation within milliseconds": lines.of(fine_until(Unit.RATIO, warn=0.95))(
        "Of all time that fast sampled ports were looked at: half, 90 % and 99 % of it was at or "
        "below these utilisations. The mean hides this: a link that is full for a tenth of the "
        "time has a mean of 10 %. Only where an agent of ours samples bursts; line at 95 % "
        "(capacity_peak).",
        {
            "half of the time": f"histogram_quantile(0.5, {BURSTS})",
            "90 % of the time": f"histogram_quantile(0.9, {BURSTS})",
            "99 % of the time": f"histogram_quantile(0.99, {BURSTS})",
        },
        silence="No fast sampler runs, or no rules do.",
    ),
    "Fullest ports": table.of(silence=NO_RULES)(
        f"The {HOTTEST} ports that sent most over the range shown, by their rate; beside it the "
        "last 5 minutes. The same ports every day need more links or other jobs. Colours from 80 % "
        "(capacity_average) and 95 % on (capacity_peak), policies of ours.",
        "host device port",
        {
            ("In the range", limits.NO_ROOM): FULLEST,
            ("Now", limits.NO_ROOM): f"{SENDS_NOW} and {FULLEST}",
        },
    ),
}

OVER = "[$__range:$__interval]"
TREND = {
    "Trend by tier": table.of(silence=NO_RULES)(
        "Mean utilisation of each tier now and over the range shown; how much it changes in a day "
        "at the pace of that range; and where it would be after as long again, if it went on like "
        "this. Choose a range of days or weeks: within an hour it only shows whether a job has "
        "begun or ended. Further ahead is not shown, because load moves in steps, when jobs come "
        "and go. Colour from 80 % on (capacity_average).",
        (*titled(tier="Tier"),),
        {
            ("Now", Unit.RATIO): MEAN_BY_TIER,
            ("In the range", Unit.RATIO): f"{over_range(f'{UTILISATION}:sum')}"
            f" / {over_range(f'{UTILISATION}:count')}",
            ("A day", Unit.RATIO): f"deriv(({MEAN_BY_TIER}){OVER}) * {DAY_SECONDS}",
            ("After as long again", fine_until(Unit.RATIO, warn=FULL)): f"clamp("
            f"predict_linear(({MEAN_BY_TIER}){OVER}, $__range_s), 0, 1)",
        },
    ),
    "Traffic of all NICs": lines.of(Unit.BITS_PER_SECOND, silence=NO_RULES)(
        "What all hosts send together. Steps are jobs that begin and end; a slope over weeks is "
        "growth.",
        {"sent": f'sum(tier:fabric_link_transmit_bits:rate5m{{{HERE}, tier="NICs"}})'},
    ),
}

DOWN_TO_UP = (
    f"sum by (cluster, host) ({to_hosts(UP_RATE)})"
    f" / on (cluster, host) sum by (cluster, host) ({to_switches(UP_RATE)})"
)
NO_UPLINKS = "No uplinks are known, or no rules run."
BETWEEN = {
    "Oversubscription of switches": bars.of(
        fine_until(look=1.001, warn=2), decimals=2, jump=jumps.TO_THIS_SWITCH
    )(
        "What a switch could get from its hosts by what its uplinks carry, in rates of ports that "
        "are up. 1 is a fabric without bottleneck, which is usual for training; above it all hosts "
        "together are slower than each alone. It rises when an uplink is lost. Only switches that "
        "are read and have both. Colours above 1 and from 2 on, a policy of ours.",
        {"{{host}}": DOWN_TO_UP},
    ),
    "Uplinks of each switch": lines.of(UPLINKS_FULL, jump=jumps.TO_THIS_SWITCH, silence=NO_UPLINKS)(
        "Mean utilisation of a switch's uplinks as they send. From 70 % on the switch needs more "
        "of them, or fewer jobs across it (capacity_uplinks_average, a policy of ours; the rule "
        "pack warns after an hour).",
        {"{{host}}": gauge("switch:fabric_port_uplink_transmit:utilisation5m", by="cluster, host")},
    ),
    "Unevenness of uplinks": lines.of(limits.UNEVEN, jump=jumps.TO_THIS_SWITCH)(
        "The busiest uplink of a switch by the mean of all of them. 1 is even; from 1.5 on hashing "
        "puts too many flows on one link (capacity_imbalance, a policy of ours). Only where the "
        "mean is above 20 %: below it is no harm (capacity_imbalance_load).",
        {"{{host}}": gauge("switch:fabric_port_uplink_transmit:imbalance5m", by="cluster, host")},
        silence="No switch's uplinks are loaded above 20 %, or no rules run.",
    ),
}

GPUS = {
    "How many GPUs are how busy": spread.of(Unit.RATIO)(
        "Share of time in which a kernel ran, of every GPU: how many there are at each level. "
        "Usual are two humps: those of jobs near 100 %, and those without one at 0.",
        {"": BUSY},
    ),
    "How many GPUs' memory is how full": spread.of(Unit.RATIO)(
        "Memory in use of what each GPU has, without what its driver keeps: how many GPUs there "
        "are at each level.",
        {"": MEMORY},
    ),
    "How many GPUs draw how much power": spread.of(Unit.WATTS)(
        "Power of every GPU: how many there are at each level. Low power at full utilisation is a "
        "GPU that waits.",
        {"": POWER},
    ),
    "GPUs busy": lines.of(Unit.RATIO)(
        "Share of time in which a kernel ran: the mean, and the tenth of the GPUs that does least. "
        "The gap between them is what could be placed elsewhere.",
        {"mean": f"avg({BUSY})", "least tenth": f"quantile(0.1, {BUSY})"},
    ),
    "GPU memory used": lines.of(Unit.RATIO)(
        "Memory in use of what GPUs have: the middle one, the top tenth and the fullest. A job "
        "that grows towards 100 % ends with an allocation error.",
        {
            "median": f"quantile(0.5, {MEMORY})",
            "90th percentile": f"quantile(0.9, {MEMORY})",
            "most": f"max({MEMORY})",
        },
    ),
    "Power of all GPUs": lines.of(Unit.WATTS)(
        "What all GPUs draw together, for the room's power and cooling.", {"drawn": f"sum({POWER})"}
    ),
}

BOARD = board(
    title="Capacity",
    question="Where is room, and what fills up?",
    tags=("planning",),
    variables=(CLUSTER,),
    rows={
        "Is there room?": GLANCE,
        "Links: how full, and how evenly": LINKS,
        "Where it goes": TREND,
        "Between tiers": thirds(BETWEEN),
        "GPUs": thirds(GPUS),
    },
    since="now-24h",
    refresh="5m",
    has_incidents=False,
)
