"""What one machine is doing: GPUs, NICs and PCIe beside each other on one clock.

Three columns (GPU, network, PCIe) and three questions as rows: how much they work, what holds them
back, what is broken. Across a row one sees which of the three moved first. Everything but
the judge's words works with node_exporter and dcgm-exporter alone, as far as they measure it.
"""

from __future__ import annotations

from functools import partial

from dashboards.grafana import jumps, limits
from dashboards.grafana.cable import PAUSE_BITS
from dashboards.grafana.expressions import (
    HERE,
    HERE_OR_NOWHERE,
    INCIDENT,
    SOMEBODY_LOOKS,
    gauge,
    rate,
)
from dashboards.grafana.limits import bad_until, colours, fine_until
from dashboards.grafana.model import Colour, Unit
from dashboards.grafana.shapes import NOT_MEASURED, board, lines, number, states, table, thirds
from dashboards.grafana.variables import CLUSTER, HOST

THROTTLE = 0.2
"""Knob gpus_throttle: Oracle Cloud's GPU rules, 20 % of 5 minutes."""
HOT = 0.98
"""Knob gpus_hot: of the slowdown temperature; Oracle Cloud's GPU rules."""
REPLAYS = 8 / 60
"""Knob gpus_pcie_replays_per_minute: 8 a minute, from DCGM's source."""
PAUSED = 0.05
PAUSED_MUCH = 0.3
"""Knobs pause_share and pause_share_heavy: policies of ours after folklore."""
STALLED = 0.15
"""Knob congestion_pcie_stalled: a policy of ours."""
FULL = 0.8
FULL_PEAK = 0.95
"""Knobs capacity_average and capacity_peak: 80 % is a common planning limit."""
RESENT = 1.0
"""Knobs loss_ack_timeouts (NVIDIA NVSentinel) and congestion_retransmits: one a second."""
PRESSURE = 0.1
"""A tenth of the time: a policy of ours, what a straggling job loses (stragglers_waited_for)."""

NO_ENGINE = "No inference engine (vLLM, SGLang) is scraped here."

ON = f'host="$host", {HERE}'
ABOUT = f'host="$host", {HERE_OR_NOWHERE}'
PLACE = "device, port"


gpus = partial(gauge, by="gpu", where=ON)
gpu_rate = partial(rate, by="gpu", where=ON, how="max")
port_rate = partial(rate, by=PLACE, where=ON)
nic_rate = partial(rate, by="device", where=ON)
SPEED = f"({gauge('fabric_nic_speed_bits_per_second', by='device', where=ON)} > 0)"


def gpu_increase(metric: str) -> str:
    return f"max by (gpu) (increase({metric}{{{ON}}}[$__rate_interval]))"


def host_rate(metric: str) -> str:
    return f"sum(rate({metric}{{{ON}}}[$__rate_interval]))"


def over(seconds: str, count: str) -> str:
    """The average of what two counters of the host add up."""
    return f"{host_rate(f'{seconds}_total')} / ({host_rate(f'{count}_total')} > 0)"


def paused(direction: str) -> str:
    """Share of time that pause took, of the most paused class of traffic.

    Where a NIC counts frames and not their time: the longest time that they can stop it.
    """
    seconds = nic_rate(f"fabric_nic_{direction}_pause_seconds_total", how="max")
    frames = nic_rate(f"fabric_nic_phy_{direction}_pause_frames_total")
    return f"{seconds} or clamp_max({frames} * {PAUSE_BITS} / {SPEED}, 1)"


def by_line(direction: str) -> str:
    """Bytes by the rate of the link; of interfaces where the host has no RDMA ports."""
    ports = f"{port_rate(f'fabric_port_{direction}_bytes_total')} * 8"
    nics = f"{nic_rate(f'fabric_nic_{direction}_bytes_total')} * 8"
    line = f"({gauge('fabric_port_rate_bits_per_second', by=PLACE, where=ON)} > 0)"
    return f"{ports} / {line} or {nics} / {SPEED} unless on () max({line})"


def bit(mask: int) -> str:
    """1 where NVML's reasons for a clock have this bit."""
    return f"floor(fabric_gpu_clock_event_reasons{{{ON}}} / {mask}) % 2"


XIDS = f"sum(increase(fabric_gpu_xid_errors_total{{{ON}}}[$__range]))"
XID_SEEN = f"count(max_over_time(fabric_gpu_xid_last{{{ON}}}[$__range]) > 0)"
PCIE_SHARE = (
    f"{gpus('fabric_gpu_pcie_lanes')} / on (gpu) ({gpus('fabric_gpu_pcie_lanes_max')} > 0)"
    f" * on (gpu) 2 ^ ({gpus('fabric_gpu_pcie_generation')}"
    f" - on (gpu) {gpus('fabric_gpu_pcie_generation_max')})"
)
"""A PCIe link's bandwidth by what it could have: a generation has twice that of the one before."""
GLANCE = {
    "Incidents": number(
        "Open incidents whose culprit is on this host. Usual: 0. Nothing at all means that no "
        "service of ours evaluates.",
        f'count(max by (incident) (fabric_incident{{host="$host"}})) or {SOMEBODY_LOOKS}',
    ),
    "GPUs busy": number.of(Unit.RATIO)(
        "Share of time in which any kernel ran, in the mean of its GPUs. A GPU that waits in a "
        "collective runs one too.",
        f"avg({gpus('fabric_gpu_utilization_ratio')})",
    ),
    "XID errors": number(
        "Errors that the NVIDIA driver reported within the range shown, or GPUs that have one "
        "where only dcgm-exporter is asked. Usual: 0. What each number asks for is in the runbooks "
        "of the alerts about GPUs.",
        f"round({XIDS}) or {XID_SEEN} or 0 * count({gpus('fabric_gpu_temperature_celsius')})",
    ),
    "Ports not active": number(
        "Ports that are there and carry no traffic now. Usual: 0, or as many as have no cable. An "
        "alert comes after 4 minutes (links_down_for, after gpud).",
        f"count(min by ({PLACE}) (fabric_port_state{{{ON}}}) < 4)"
        f" or count(min by (device) (fabric_nic_up{{{ON}}}) == 0)"
        f" or 0 * count(fabric_port_state{{{ON}}}) or 0 * count(fabric_nic_up{{{ON}}})",
    ),
    "GPUs on a slow PCIe link": number(
        "GPUs whose PCIe link has fewer lanes than it could, or a lower generation while the GPU "
        "works; one at rest lowers it to save power. Usual: 0 (gpus_pcie_busy, half, is a policy "
        "of ours).",
        f"count({PCIE_SHARE} < 1 and on (gpu) {gpus('fabric_gpu_utilization_ratio')} > 0.5)"
        f" or 0 * count({PCIE_SHARE})",
    ),
    "Memory left": number.of(bad_until(Unit.RATIO, warn=0.05, fine=0.1))(
        "Memory that new work could have without swapping, of all that the host has. Usual: above "
        "10 %; below it loaders and checkpoints begin to stall (a policy of ours).",
        f"max(fabric_host_memory_available_bytes{{{ON}}})"
        f" / max(fabric_host_memory_total_bytes{{{ON}}})",
    ),
}

JUDGE = {
    "Incidents of this host": table.of(sort_by="GPU hours", height=6)(
        "The verdicts about this host, the job that suffers, and what it has cost. Below "
        f"{limits.SURE:.0%} sure an incident does not page (incidents_confidence, a policy of "
        "ours).",
        "cause reason gpu device switch_port job rank",
        {
            ("Sure", limits.SURE_SHARE): f'max by ({INCIDENT}) (fabric_incident{{host="$host"}})',
            ("GPU hours", Unit.HOURS): f'0 * max by ({INCIDENT}) (fabric_incident{{host="$host"}})'
            " + on (incident, job) group_left () sum by (incident, job)"
            " (fabric_incident_lost_gpu_seconds_total) / 3600",
        },
        silence="No open incident names this host.",
    ),
    "Alerts of this host": table.of(height=6)(
        "What fires about this host, its GPUs, NICs and ports. Most of it is the sign of an "
        "incident: begin with that.",
        "alertname severity device gpu rank job",
        {},
        "max by (alertname, severity, device, port, gpu, rank, job)"
        f' (ALERTS{{alertstate="firing", severity!="none", {ABOUT}}})',
        silence="No alert about this host fires.",
    ),
    "Ranks that run here": lines.of(
        Unit.SECONDS, width=24, least=None, jump=jumps.TO_RANKS, height=7
    )(
        "How much later than the median rank the ranks of this host enter their collectives. All "
        "of them late together is the host; one is its GPU. Up to a few milliseconds either way is "
        "usual.",
        {"{{job}} rank {{rank}}": f"max by (job, rank) (fabric_rank_lateness_seconds{{{ABOUT}}})"},
        silence="No job's collectives are seen on this host.",
    ),
}

WORK = {
    "GPU: work": lines.of(Unit.RATIO)(
        "Share of time in which the tensor cores had work; where that is not measured, in which "
        "any kernel ran. Steps make waves in it. A GPU below its neighbours in one host has less "
        "to do, or waits for something of its own.",
        {
            "gpu {{gpu}}": f"{gpus('fabric_gpu_tensor_active_ratio')}"
            f" or on (gpu) {gpus('fabric_gpu_utilization_ratio')}"
        },
    ),
    "Network: transmit": lines.of(fine_until(Unit.RATIO, look=FULL, warn=FULL_PEAK))(
        f"Sent by the rate of the link. {FULL:.0%} in the mean is a common planning limit "
        f"(capacity_average), {FULL_PEAK:.0%} is full (capacity_peak, a policy of ours). In a ring "
        "all NICs of a job send the same.",
        {"{{device}} {{port}}": by_line("transmit")},
    ),
    "PCIe: what GPUs send": lines.of(Unit.BITS_PER_SECOND)(
        "What each GPU sends over PCIe, the mean since the last read: to its NIC, to the host's "
        "memory. Compare with the NIC beside it. Gen4 x16 is 252 Gb/s, Gen5 x16 504 Gb/s before "
        "headers.",
        {"gpu {{gpu}}": gpus("fabric_gpu_pcie_transmit_rate_bits_per_second")},
        silence="No source measures PCIe traffic: it needs the GPU's profiling counters.",
    ),
    "GPU: clock": lines.of(Unit.HERTZ)(
        "Clock of the multiprocessors. One that is lower than its neighbours' under the same load "
        "makes a straggler.",
        {"gpu {{gpu}}": gpus("fabric_gpu_sm_clock_hertz")},
    ),
    "Network: receive": lines.of(fine_until(Unit.RATIO, look=FULL, warn=FULL_PEAK))(
        "Received by the rate of the link, with the same limits as transmit.",
        {"{{device}} {{port}}": by_line("receive")},
    ),
    "PCIe: link by its best": lines.of(bad_until(Unit.RATIO, fine=1))(
        "Bandwidth of each GPU's PCIe link by what it could have, from lanes and generation: 1 is "
        "all of it, 0.5 half of the lanes or one generation down. A GPU at rest lowers its "
        "generation to save power; one that works and is below 1 sits badly in its slot or has a "
        "bad riser.",
        {"gpu {{gpu}}": PCIE_SHARE},
    ),
}

STALLS = (
    "max by (device) (rate(fabric_nic_pcie_{}_stalled_seconds_total{{{}}}[$__rate_interval]))"
    " or max by (device) (fabric_nic_pcie_{}_stalled_ratio{{{}}})"
)
HELD = {
    "GPU: throttled": lines.of(fine_until(Unit.RATIO, warn=THROTTLE))(
        "Share of time in which heat or the power limit held the clock down. Power at full load is "
        f"normal where all GPUs show it; heat never is. Line at {THROTTLE:.0%} (gpus_throttle, "
        "Oracle Cloud's GPU rules).",
        {
            "gpu {{gpu}} heat": gpu_rate("fabric_gpu_thermal_violation_seconds_total"),
            "gpu {{gpu}} power": gpu_rate("fabric_gpu_power_violation_seconds_total"),
        },
    ),
    "Network: paused, or without credit": lines.of(
        fine_until(Unit.RATIO, look=PAUSED, bad=PAUSED_MUCH)
    )(
        "Share of time in which a NIC had to stop (received pause), made its switch stop (sent), "
        "or on InfiniBand had data and no credit. Sent pause means that this host cannot take what "
        "comes: look at PCIe. Where only frames are counted it is the longest time that they can "
        f"have meant. Lines at {PAUSED:.0%} and {PAUSED_MUCH:.0%} (pause_share, policies of ours "
        "after folklore).",
        {
            "{{device}} was paused": paused("receive"),
            "{{device}} paused others": paused("transmit"),
            "{{device}} {{port}} without credit": port_rate(
                "fabric_port_transmit_wait_seconds_total"
            ),
        },
        silence="No pause and no lack of credit is measured here.",
    ),
    "PCIe: NICs stalled": lines.of(fine_until(Unit.RATIO, warn=STALLED))(
        "Share of time in which a NIC wanted to read or write the host's memory and PCIe did not "
        f"let it. In health 0; line at {STALLED:.0%} (congestion_pcie_stalled, a policy of ours). "
        "Stalled writes make the NIC pause its switch, stalled reads make it send late.",
        {
            "{{device}} writes": STALLS.format("write", ON, "write", ON),
            "{{device}} reads": STALLS.format("read", ON, "read", ON),
        },
        silence="This NIC's driver does not count stalls.",
    ),
    "GPU: why the clock is what it is": states.of(
        colours({None: Colour.FINE, 1: Colour.PLAIN, 2: Colour.WARN, 4: Colour.BAD}),
        values={
            "0": "free",
            "1": "power cap",
            "2": "heat",
            "3": "heat, power cap",
            "4": "hardware",
            "5": "hardware, power cap",
            "6": "hardware, heat",
            "7": "hardware, heat, power cap",
        },
    )(
        "What the driver gives as the reason for each GPU's clock. A power cap is usual under full "
        "load; heat and a slowdown by the hardware (overheating, power supply) are not.",
        {
            "gpu {{gpu}}": "max by (gpu) ("
            f"4 * clamp_max({bit(0x8)} + {bit(0x80)}, 1)"
            f" + 2 * clamp_max({bit(0x20)} + {bit(0x40)}, 1)"
            f" + {bit(0x4)})"
        },
    ),
    "Network: congestion marks": lines.of(Unit.PACKETS_PER_SECOND)(
        "Packets that came with a congestion mark, and notifications that this host's senders "
        "obeyed by slowing down, a second. There is no public limit: compare with the other NICs "
        "and with the past.",
        {
            "{{device}} marked": port_rate("fabric_port_receive_ecn_marked_packets_total"),
            "{{device}} slowed down": port_rate("fabric_port_cnp_handled_total"),
        },
        silence="No congestion control is measured here (InfiniBand has none of this kind).",
    ),
    "PCIe: packets lost behind the NIC": lines.of(fine_until(Unit.PACKETS_PER_SECOND, warn=1))(
        "Packets that PCIe did not take in time and the NIC dropped, and those for which no "
        "receive buffer was there. In health 0; from one a second on there is an alert "
        "(congestion_pcie_overflow, a policy of ours).",
        {
            "{{device}} overflow": nic_rate("fabric_nic_pcie_buffer_overflow_packets_total"),
            "{{device}} no buffer": nic_rate("fabric_nic_receive_out_of_buffer_total"),
        },
        silence="This NIC's driver does not count them.",
    ),
}

BROKEN = {
    "GPU: memory errors": lines(
        "Memory errors within the time of a point. Uncorrected ones end a job, and none is "
        "accepted (gpus_ecc_uncorrected; NVIDIA's XID catalogue). Corrected ones are usual now and "
        "then; a GPU with many more than its neighbours is wearing out.",
        {
            "gpu {{gpu}} uncorrected": gpu_increase("fabric_gpu_ecc_uncorrected_errors_total"),
            "gpu {{gpu}} corrected": gpu_increase("fabric_gpu_ecc_corrected_errors_total"),
        },
    ),
    "Network: retransmissions": lines.of(fine_until(Unit.EVENTS_PER_SECOND, warn=RESENT))(
        "Packets that had to be sent again, by how the NIC noticed: out of sequence at the "
        "receiver, time-outs, adaptive retransmissions. In a lossless fabric 0; line at one a "
        "second (loss_ack_timeouts, NVIDIA NVSentinel).",
        {
            "{{device}} sequence": port_rate("fabric_port_sequence_naks_total"),
            "{{device}} time-outs": port_rate("fabric_port_ack_timeouts_total"),
            "{{device}} adaptive": port_rate("fabric_port_adaptive_retransmits_total"),
        },
        silence="No source counts retransmissions here: they are RDMA's.",
    ),
    "PCIe: replays": lines.of(fine_until(Unit.EVENTS_PER_SECOND, warn=REPLAYS))(
        "Packets that GPUs had to send again over PCIe, a second. A steady rise is a bad slot, "
        "riser or retimer; line at 8 a minute (gpus_pcie_replays_per_minute, DCGM's source).",
        {"gpu {{gpu}}": gpu_rate("fabric_gpu_pcie_replays_total")},
    ),
    "GPU: last XID": states.of(limits.ANY_IS_BAD, values={"0": "none"})(
        "Number of the last error that the driver reported about each GPU; 0 is none. 79: the GPU "
        "has left the bus; 48 and 94: memory; 74 and 144 to 150: NVLink; 13 and 31: mostly the "
        "program. NVIDIA's XID catalogue lists what to do.",
        {"gpu {{gpu}}": gpus("fabric_gpu_xid_last")},
    ),
    "Network: errors and drops": lines.of(Unit.PACKETS_PER_SECOND)(
        "Damaged packets received, packets dropped on the way out, and packets for which there was "
        "no room, a second. Usual: 0. The board of the port has each as a rate by bits.",
        {
            "{{device}} {{port}} damaged": port_rate("fabric_port_receive_errors_total"),
            "{{device}} {{port}} dropped": port_rate("fabric_port_transmit_discards_total"),
            "{{device}} interface": f"{nic_rate('fabric_nic_receive_errors_total')}"
            f" + on (device) {nic_rate('fabric_nic_transmit_errors_total')}",
        },
    ),
    "NVLink: errors": lines(
        "Links between GPUs that had to retrain, and retransmissions on them, within the time of a "
        "point. Usual: 0; retraining is alerted from the first one on (gpus_nvlink_recoveries, a "
        "policy of ours: it may climb for days before a failure).",
        {
            "gpu {{gpu}} retrained": gpu_increase("fabric_gpu_nvlink_recovery_errors_total"),
            "gpu {{gpu}} replays": gpu_increase("fabric_gpu_nvlink_replay_errors_total"),
        },
        silence="These GPUs have no NVLink, or no source counts its errors.",
    ),
}

HEAT = {
    "Temperature by the slowdown limit": lines.of(fine_until(Unit.RATIO, bad=HOT))(
        "Temperature of each GPU by the one at which the hardware slows it down. Line at "
        f"{HOT:.0%} (gpus_hot, Oracle Cloud's GPU rules). One that is warmer than its neighbours "
        "at the same power has a cooling fault.",
        {
            "gpu {{gpu}}": f"{gpus('fabric_gpu_temperature_celsius')}"
            f" / on (gpu) ({gpus('fabric_gpu_temperature_slowdown_celsius')} > 0)"
        },
    ),
    "Temperature": lines.of(Unit.CELSIUS)(
        "Degrees, of the GPU and of its memory.",
        {
            "gpu {{gpu}}": gpus("fabric_gpu_temperature_celsius"),
            "gpu {{gpu}} memory": gpus("fabric_gpu_memory_temperature_celsius"),
        },
    ),
    "Power": lines.of(Unit.WATTS)(
        "What each GPU draws. A GPU whose utilisation is high and whose power is low runs a kernel "
        "that only waits: a collective that never finishes.",
        {"gpu {{gpu}}": gpus("fabric_gpu_power_watts")},
    ),
    "GPU memory in use": lines.of(Unit.BYTES)(
        "A step of the job that needs more than is left ends it.",
        {"gpu {{gpu}}": gpus("fabric_gpu_memory_used_bytes")},
    ),
    "State of the GPUs' memory": table.of(width=16)(
        "Rows of memory that were replaced after errors, whether a replacement waits for a reset, "
        "and whether one failed: then the GPU has to be exchanged.",
        "gpu",
        {
            ("After uncorrected", limits.ANY_IS_BAD): gpus("fabric_gpu_remapped_rows_uncorrected"),
            "After corrected": gpus("fabric_gpu_remapped_rows_corrected"),
            ("Waits for a reset", limits.ANY_IS_BAD): gpus("fabric_gpu_row_remap_pending"),
            ("Failed", limits.ANY_IS_BAD): gpus("fabric_gpu_row_remap_failed"),
        },
        empty_text=NOT_MEASURED,
    ),
}


def pressure(what: str) -> str:
    """Share of time in which tasks waited for something, as the kernel counts it."""
    return f"max(rate(fabric_host_pressure_{what}_seconds_total{{{ON}}}[$__rate_interval]))"


MACHINE = {
    "Pressure": lines.of(fine_until(Unit.RATIO, warn=PRESSURE))(
        "Share of time in which tasks waited: for a processor, for memory, for a disk (some of "
        "them; `all` when none could go on). A rank on a host under pressure comes late to its "
        f"collectives. Line at {PRESSURE:.0%} (a policy of ours).",
        {
            "processor": pressure("cpu_waiting"),
            "memory": pressure("memory_waiting"),
            "memory, all": pressure("memory_stalled"),
            "disk": pressure("io_waiting"),
            "disk, all": pressure("io_stalled"),
        },
    ),
    "Processors": lines(
        "Tasks that run or could run, tasks that wait for a disk, and the load. Above the number "
        "of processors some of them wait.",
        {
            "can run": f"max(fabric_host_tasks_running{{{ON}}})",
            "wait for a disk": f"max(fabric_host_tasks_blocked{{{ON}}})",
            "load": f"max(fabric_host_load1{{{ON}}})",
            "processors": f"max(fabric_host_cpus{{{ON}}})",
        },
    ),
    "Memory": lines.of(Unit.BYTES)(
        "Memory that is available, the cache of files, and what waits to be written. A checkpoint "
        "lets the last one rise and then stalls the writers.",
        {
            "available": f"max(fabric_host_memory_available_bytes{{{ON}}})",
            "cache": f"max(fabric_host_memory_cached_bytes{{{ON}}})",
            "to be written": f"max(fabric_host_memory_dirty_bytes{{{ON}}})"
            f" + max(fabric_host_memory_writeback_bytes{{{ON}}})",
        },
    ),
    "Stalls by memory and disk": lines.of(Unit.EVENTS_PER_SECOND)(
        "Page faults that had to wait for a disk, pages swapped, and times that a task had to free "
        "memory itself, a second. Usual: next to none on a host that trains.",
        {
            "major faults": host_rate("fabric_host_major_faults_total"),
            "swapped in": host_rate("fabric_host_swap_in_pages_total"),
            "swapped out": host_rate("fabric_host_swap_out_pages_total"),
            "allocation stalls": host_rate("fabric_host_allocation_stalls_total"),
        },
    ),
    "Where the processors' time goes": lines(
        "Processors busy in each mode. Much `iowait` beside a GPU at rest is a loader that waits "
        "for files; `steal` is what a hypervisor gave to others; `softirq` is the network's own "
        "work.",
        {
            "{{mode}}": "sum by (mode) (rate(fabric_host_cpu_seconds_total"
            f'{{{ON}, mode!="idle"}}[$__rate_interval]))'
        },
        silence="No agent of ours adds up the processors' time here.",
    ),
    "Jobs held down by their quota": lines.of(fine_until(Unit.RATIO, warn=PRESSURE))(
        "Share of time in which a cgroup had used up its processor quota and had to wait: loaders "
        "and communication threads of a job in a container with too few processors. Usual: 0.",
        {
            "{{cgroup}}": rate(
                "fabric_host_cgroup_cpu_throttled_seconds_total", by="cgroup", where=ON, how="max"
            )
        },
        silence="No cgroup with a quota holds a GPU here.",
    ),
}

ENGINE = {
    "Engine: how long a token takes": lines.of(Unit.SECONDS)(
        "Average time to a request's first token (queue and prefill), and from each token to the "
        "next. An alert comes where tokens take half again as long as usual (engines_factor) while "
        "a port of this host is in trouble.",
        {
            "first token": over("fabric_engine_first_token_seconds", "fabric_engine_first_tokens"),
            "next token": over("fabric_engine_token_gap_seconds", "fabric_engine_token_gaps"),
        },
        silence=NO_ENGINE,
    ),
    "Engine: how many requests": lines(
        "Requests that run and that wait. More of them make every token slower: look here before "
        "the network is blamed.",
        {
            "running": f"sum(fabric_engine_running_requests{{{ON}}})",
            "waiting": f"sum(fabric_engine_waiting_requests{{{ON}}})",
        },
        silence=NO_ENGINE,
    ),
    "Engine: transfers of keys and values": lines.of(Unit.SECONDS)(
        "Average time of a transfer, where prefill and decode are apart. It goes over the network: "
        "compare with the ports above.",
        {"a transfer": over("fabric_engine_kv_transfer_seconds", "fabric_engine_kv_transfers")},
        silence="No engine here moves keys and values to another.",
    ),
}

BOARD = board(
    title="Host",
    question="What is this machine doing: its GPUs, NICs and PCIe on one clock, and what is wrong?",
    tags=("host",),
    variables=(CLUSTER, HOST),
    rows={
        "At a glance": GLANCE,
        "Verdicts about it": JUDGE,
        "How much do they work?      GPU · network · PCIe": thirds(WORK),
        "What holds them back?      GPU · network · PCIe": thirds(HELD),
        "What is broken?      GPU · network · PCIe": thirds(BROKEN),
        "Heat, power and memory of the GPUs": thirds(HEAT),
        "The machine under them": thirds(MACHINE),
        "The inference engine on it": thirds(ENGINE),
    },
)
