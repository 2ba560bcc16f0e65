"""Whether anything is wrong, and what comes first.

The first row is read in ten seconds. Its numbers are 0 only where there are readings: a fleet
without any shows "not measured" and never a green nought.
"""

from __future__ import annotations

from functools import partial

from dashboards.grafana import jumps, limits
from dashboards.grafana.expressions import (
    HERE,
    HERE_OR_NOWHERE,
    INCIDENTS,
    LOST_GPU_HOURS,
    LOST_GPUS,
    NIC,
    NIC_RATE,
    PORT,
    PORT_RATE,
    SOMEBODY_LOOKS,
    gauge,
    on_ports,
    per_nic,
    per_port,
    utilisation,
)
from dashboards.grafana.limits import fine_until
from dashboards.grafana.model import Column, Panel, Unit
from dashboards.grafana.shapes import (
    THIS_SWITCH,
    Numbers,
    board,
    lines,
    named,
    number,
    table,
    titled,
)
from dashboards.grafana.variables import CLUSTER

SEEN_WITHIN = "1h"
"""Knob self_agent_window: who was seen within this time and is not now is missing."""
WORST = 8
"""Rows of a table of worst things: as many as a person reads."""


PORT_STATE = f"min by ({PORT}) (fabric_port_state{{{HERE}}})"
PORTS_LOST = (
    f"({PORT_STATE} < 4"
    f" unless on ({PORT}) fabric_port_enabled{{{HERE}}} == 0"
    f" and on ({PORT}) max_over_time(fabric_port_state{{{HERE}}}[$__range]) >= 4)"
)
"""Ports that carried traffic within the range and do not now; not those that were switched off."""
HOSTS_SEEN = f"max by (cluster, host) (last_over_time(fabric_host_load1{{{HERE}}}[{SEEN_WITHIN}]))"
HOSTS_MISSING = f"({HOSTS_SEEN} unless on (cluster, host) fabric_host_load1{{{HERE}}})"
SWITCHES_SEEN = (
    f"max by (cluster, host) (last_over_time(fabric_switch_up{{{HERE}}}[{SEEN_WITHIN}]))"
)
SWITCHES_AWAY = (
    f"(max by (cluster, host) (fabric_switch_up{{{HERE}}}) == 0"
    f" or {SWITCHES_SEEN} unless on (cluster, host) fabric_switch_up{{{HERE}}})"
)
ALERTS_FIRING = f'ALERTS{{alertstate="firing", severity=~"critical|warning", {HERE_OR_NOWHERE}}}'

GLANCE = {
    "Incidents": number(
        "Open incidents of which the judge is at least 50 % sure: these page. Usual: 0. They have "
        "no cluster, because one may span several: all are counted, whichever cluster is chosen. "
        "Nothing at all means that no service of ours evaluates. The limit is the rule pack's "
        "(incidents_confidence, a policy of ours).",
        f"count(max by (incident) (fabric_incident) >= {limits.SURE}) or {SOMEBODY_LOOKS}",
    ),
    "GPU hours lost": number.of(limits.GPU_HOURS, decimals=1)(
        "Time that jobs lost to incidents within the range shown, over all of their GPUs: their "
        "steps, replayed without the culprit. Usual: 0. The colours begin at one GPU for an hour "
        "and at a host of 8 for an hour (a policy of ours).",
        f"{LOST_GPU_HOURS} or {SOMEBODY_LOOKS}",
    ),
    "Alerts": number.of(limits.ANY_IS_ODD)(
        "Alerts that fire with severity critical or warning, explained by an incident or not. Most "
        "of them are signs of few troubles: begin with the incidents. Nothing at all means that "
        "rules are not evaluated: the watchdog, which always fires, is missing.",
        f'count({ALERTS_FIRING}) or 0 * count(ALERTS{{alertname="FabricWatchdog"}})',
    ),
    "Ports lost": number(
        "Ports that carried traffic within the range shown and do not now, of hosts and switches; "
        "a cable that broke has two. Those that their operator switched off are left out. Usual: "
        "0. An alert comes after 4 minutes (links_down_for, after gpud).",
        f"count({PORTS_LOST}) or 0 * count({PORT_STATE})",
    ),
    "Hosts silent": number(
        f"Hosts that gave readings within {SEEN_WITHIN} and do not now (five minutes, which is how "
        "far PromQL looks back). Usual: 0; one that was taken out on purpose is forgotten after "
        "that time. The time is the rule pack's (self_agent_window, a policy of ours).",
        f"count({HOSTS_MISSING}) or 0 * count({HOSTS_SEEN})",
    ),
    "Switches silent": number(
        "Switches that did not answer when they were last polled, or that were not polled for five "
        f"minutes although they were asked within {SEEN_WITHIN}. Usual: 0.",
        f"count({SWITCHES_AWAY}) or 0 * count({SWITCHES_SEEN})",
    ),
}

SINCE = "min by (incident) (min_over_time(timestamp(fabric_incident)[1d:30s]))"
"""When an incident began; looked for in the last day."""
FIRST = {
    "Open incidents": table.of(sort_by="GPU hours", width=24)(
        "One row for each incident and job that suffers from it; the costliest is first. The "
        "culprit is named by host, device and GPU, or by switch and port; a link by both of its "
        "ends. `Sure` is the judge's confidence: below 50 % an incident does not page "
        "(incidents_confidence, a policy of ours). Cost is what this job has lost so far, over its "
        "GPUs. The names lead to their boards.",
        (
            *named("cause reason host device gpu switch switch_port job"),
            Column(label="Value #B", title="Lasts", unit=Unit.SECONDS),
            Column(label="Value", title="Sure", unit=Unit.RATIO, steps=limits.SURE_SHARE.steps),
            Column(label="Value #C", title="GPU hours"),
        ),
        {},
        INCIDENTS,
        f"time() - (0 * {INCIDENTS} + on (incident) group_left () {SINCE})",
        f"0 * {INCIDENTS} + on (incident, job) group_left ()"
        " sum by (incident, job) (fabric_incident_lost_gpu_seconds_total) / 3600",
        silence="No incident is open. The first number shows whether a service evaluates.",
    ),
    "GPUs lost to incidents": lines.of(is_stacked=True)(
        "How many GPUs' work is lost at each moment, by cause: GPU seconds lost in a second. "
        "Usual: nothing. It ends when the incident does.",
        {"{{cause}}": LOST_GPUS},
        silence="No job loses time to an incident.",
    ),
    "Network's share of each job's time": lines.of(
        fine_until(Unit.RATIO, warn=0.25), jump=jumps.TO_JOB
    )(
        "Share of the time in which the median rank was inside a collective that all ranks had "
        "entered: waiting for bytes, not for a rank. Above 25 % the network is worth a look "
        "(collectives_network_share, a goal of ours; published shares are 20 % to more than 50 %).",
        {"{{job}}": f"max by (cluster, job) (fabric_job_network_share_ratio{{{HERE_OR_NOWHERE}}})"},
    ),
}


of_job = partial(gauge, by="cluster, job", where=HERE_OR_NOWHERE)

JOBS = {
    "Jobs": table.of(sort_by="Network")(
        "Every job that is seen: ranks whose place is known, its median step, the shares of its "
        "time that the network takes and that ranks wait for a late one, and how long ago a step "
        "ended (only of jobs that mark their steps). Colours: network from 25 % on "
        "(collectives_network_share, a goal of ours), waiting from 20 % on (stragglers_job_wait, a "
        "policy of ours), no step for 10 minutes (collectives_stopped_min_seconds, after PyTorch's "
        "NCCL watchdog).",
        "job cluster",
        {
            "Ranks": of_job("fabric_job_ranks"),
            ("Step", Unit.SECONDS): of_job("fabric_job_step_seconds"),
            ("Network", fine_until(Unit.RATIO, warn=0.25)): of_job(
                "fabric_job_network_share_ratio"
            ),
            ("Waiting", fine_until(Unit.RATIO, warn=0.2)): of_job("fabric_job_wait_share_ratio"),
            ("Last step ago", fine_until(Unit.SECONDS, bad=600)): "time() -"
            f" {of_job('fabric_step_last_completed_time_seconds')}",
        },
        empty_text="No job is seen.",
    ),
    "Step time": lines.of(Unit.SECONDS, jump=jumps.TO_JOB)(
        "Median duration of each job's last steps, by the rhythm of its collectives. A job's own "
        "past is what to compare with: 10 % more is a change (FALCON, MegaScale; "
        "collectives_step_slower).",
        {"{{job}}": of_job("fabric_job_step_seconds")},
    ),
}

NIC_ERROR_RATE = (
    f"({per_nic('fabric_nic_phy_receive_pcs_symbol_errors_total', '$__range')} > 0) / {NIC_RATE}"
)
ERROR_RATE = (
    f"({per_port('fabric_port_symbol_errors_total', '$__range')} > 0) / {PORT_RATE}"
    f" or {on_ports(NIC_ERROR_RATE)}"
)
"""Errors by the bits that the link's speed carries in the same time."""


def counted(metric: str) -> str:
    """A second, over the range, of interfaces that counted any: the others are not looked at."""
    return f"{per_nic(metric, '$__range')} > 0"


WRONG_CHECKSUM = (
    f"{per_port('fabric_port_receive_crc_errors_total', '$__range')} > 0"
    f" or {on_ports(counted('fabric_nic_phy_receive_crc_errors_total'))}"
)
SENT = (
    f"(({per_port('fabric_port_transmit_packets_total', '$__range')}"
    f" or {per_port('fabric_port_transmit_unicast_packets_total', '$__range')}) > 100)"
)
"""Packets a second; with fewer there is no ratio (knob loss_packets_least)."""


def share_dropped(direction: str) -> str:
    """What ports dropped by their packets, both as the rules record them: of few ports."""
    discards, packets = (
        f"port:fabric_port_{direction}_{what}:rate5m{{{HERE}}}[$__range]"
        for what in ("discards", "packets")
    )
    return (
        f"sum_over_time({discards}) / (sum_over_time({packets}) and avg_over_time({packets}) > 100)"
    )


RECEIVED = f"(avg_over_time(port:fabric_port_receive_packets:rate5m{{{HERE}}}[$__range]) > 100)"
DROPPED = share_dropped("transmit")
DROPPED_ON_ARRIVAL = (
    f"{share_dropped('receive')}"
    f" or {on_ports(counted('fabric_nic_phy_receive_discards_total'))} / {RECEIVED}"
)
SENT_AGAIN = f"({per_port('fabric_port_sequence_naks_total', '$__range')} > 0) / {SENT}"


STOPPED = (
    f"({gauge('port:fabric_port_receive_pause_seconds:rate5m', by=PORT)}"
    f" or {gauge('port:fabric_port_transmit_wait_seconds:rate5m', by=PORT)}"
    f" or {on_ports(gauge('nic:fabric_nic_receive_pause_seconds:rate5m', by=NIC))}) > 0"
)
STOPS_OTHERS = (
    f"({gauge('port:fabric_port_transmit_pause_seconds:rate5m', by=PORT)}"
    f" or {on_ports(gauge('nic:fabric_nic_transmit_pause_seconds:rate5m', by=NIC))}) > 0"
)
NAMES = (Column(label="host", title="Host or switch", jump=jumps.TO_PORT), *named("device port"))


def worst(text: str, numbers: Numbers) -> Panel:
    tops = {head: f"topk({WORST}, {expr})" for head, expr in numbers.items()}
    return table(text, NAMES, tops, silence="No port stands out, as far as rules run.")


LINKS = {
    "Damaged bits": worst(
        "Symbol errors over the range shown by the bits that the link's speed carries in that "
        "time: a bit error rate; beside it frames a second with a wrong checksum, for switches "
        "that count nothing finer. Usual: nothing. From 1e-15 on (over two hours) it is worth a "
        "look, from 1e-14 on (over 12 minutes) the cable, transceiver or fibre is going bad "
        "(NVIDIA UFM's packet drop rate plugin; errors_ber_long, errors_ber_short).",
        {
            ("Error rate", limits.ERRORS): ERROR_RATE,
            ("Bad frames", Unit.EVENTS_PER_SECOND): WRONG_CHECKSUM,
        },
    ),
    "Lost packets": worst(
        "Shares of packets over the range shown: dropped instead of sent, dropped on arrival, and "
        "asked for again by the other side. Ports with less than 100 packets a second have no "
        "share. Usual: nothing. 1e-5 can collapse RoCE that starts over after a loss "
        "(loss_ratio_go_back_n, operators' reports); 1e-4 is where the rule pack warns "
        "(loss_ratio, a policy of ours).",
        {
            ("Dropped", limits.LOSS): DROPPED,
            ("On arrival", limits.LOSS): DROPPED_ON_ARRIVAL,
            ("Sent again", limits.LOSS): SENT_AGAIN,
        },
    ),
    "Held up": worst(
        "Share of the last 5 minutes in which a port was not allowed to send (pause, or no credit "
        "on InfiniBand), and in which it kept its neighbour from sending. What stops others and is "
        "not stopped is the root of a storm; the rest are victims. From 5 % on the rule pack "
        "warns, 30 % is near a storm (pause_share, pause_share_heavy: folklore, there is no public "
        "number).",
        {("Is stopped", limits.STOPPED): STOPPED, ("Stops others", limits.STOPPED): STOPS_OTHERS},
    ),
    "Fullest": worst(
        "Bytes over 5 minutes by the link's rate, as it sends and as it receives. Collectives fill "
        "links for moments, so a mean of 80 % leaves no room (capacity_average, a common planning "
        "limit, our policy); at 95 % the link is the limit of whatever runs here (capacity_peak).",
        {
            ("Sends", limits.NO_ROOM): utilisation("transmit", "5m"),
            ("Receives", limits.NO_ROOM): utilisation("receive", "5m"),
        },
    ),
}

BROKEN_ALERTS = (
    "FabricGpu(XidReboot|XidReset|XidWorkflow|Lost|EccUncorrected|RowRemapFailed|RecoveryAction"
    "|FabricUnhealthy)|FabricNicDown"
)
"""Alerts about parts of a host that do not come back by themselves."""
BLAMED = 'max by (host) (fabric_incident{host!="", cause!~"congestion|microburst|stall"})'
"""Not for what a host merely sends or receives too much of."""
BROKEN = (
    f'count by (host) (ALERTS{{alertstate="firing", alertname=~"{BROKEN_ALERTS}", '
    f"{HERE_OR_NOWHERE}}})"
)
SILENT_SINCE = (
    f"max by (cluster, host) (max_over_time(timestamp(fabric_host_load1{{{HERE}}})"
    f"[{SEEN_WITHIN}:1m]))"
)
SILENT_FOR = (
    f"max by (host) (time() - {SILENT_SINCE} unless on (cluster, host) fabric_host_load1{{{HERE}}})"
)
RANKS = f"count by (host) (group by (host, job, rank) (fabric_job_info{{{HERE_OR_NOWHERE}}}))"
XIDS = (
    f"max by (cluster, host, gpu, xid) (fabric_gpu_xid_errors_total{{{HERE}}}"
    f" - (fabric_gpu_xid_errors_total{{{HERE}}} offset $__range"
    f" or 0 * fabric_gpu_xid_errors_total{{{HERE}}})) > 0"
    f' or count_values by (cluster, host, gpu) ("xid", fabric_gpu_xid_last{{{HERE}}} > 0'
    f" and changes(fabric_gpu_xid_last{{{HERE}}}[$__range]) > 0)"
)
"""Not `increase`: of a number that was never seen before the first error counts, too."""

HOSTS = {
    "Hosts to drain": table(
        "Hosts that an open incident blames (for anything but congestion), that have a broken GPU "
        "or NIC by the alerts of the rule pack, or that are silent; with the ranks that run there, "
        "which draining would end. Drain those whose incident is at least 50 % sure "
        "(incidents_confidence), or that have a broken part; of the others find out first. Usual: "
        "none.",
        "host",
        {
            ("Blamed", limits.SURE_SHARE): BLAMED,
            ("Broken parts", fine_until(bad=1)): BROKEN,
            ("Silent for", Unit.SECONDS): SILENT_FOR,
            "Ranks": f"{RANKS} and on (host) ({BLAMED} or {BROKEN} or {SILENT_FOR})",
        },
        silence="No host needs to be drained.",
    ),
    "XIDs": table(
        "Errors that NVIDIA's driver reported within the range shown, by number; of dcgm-exporter, "
        "which has only the last number, those that changed. Reboot the host after 79 and 167; "
        "reset the GPU after 46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143 and 155 to 158; 48, "
        "74 and 144 to 150 have a procedure; after most others restart the application (NVIDIA's "
        "XID catalogue; knobs gpus_xids_…). Usual: none.",
        (*named("host"), *titled(gpu="GPU", xid="XID")),
        {"Times": XIDS},
        silence="No XID.",
    ),
}

SILENT = {
    "Hosts without readings": table.of(height=6)(
        f"Hosts that gave readings within {SEEN_WITHIN} and have given none for five minutes, and "
        "for how long: the host is down, its agent or exporter has ended, or it cannot reach the "
        f"service. After {SEEN_WITHIN} it is forgotten (self_agent_window).",
        "host",
        {("Silent for", Unit.SECONDS): SILENT_FOR},
        silence="Every host reports.",
    ),
    "Switches without answer": table.of(
        values={"0": "does not answer", "1": "not polled"}, height=6
    )(
        "Switches that did not answer when they were last polled, or that are not polled any more. "
        "Their ports' counters stand still: a fault there is not seen. The rule pack warns after 3 "
        "minutes (links_switch_for, a policy of ours).",
        (THIS_SWITCH,),
        {"What is wrong": SWITCHES_AWAY},
        silence="Every switch answers.",
    ),
}

BOARD = board(
    title="Fleet",
    question="Is anything wrong, and what comes first?",
    tags=("overview",),
    variables=(CLUSTER,),
    rows={
        "Is anything wrong?": GLANCE,
        "What comes first": FIRST,
        "Jobs that run": JOBS,
        "Worst links": LINKS,
        "Hosts to drain": HOSTS,
        "Who is silent": SILENT,
    },
)
