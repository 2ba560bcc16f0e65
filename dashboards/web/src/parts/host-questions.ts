/** What is asked about one host's ports, GPUs and agent, in PromQL, and what is made of the answers. Pure. */
import { onHost } from "../api/hosts";
import type { Series } from "../api/promql";

/** By port (`device`, `port`) where RDMA is counted; by interface (`device`) beside it. */
export function portQuestions(host: string, window: string) {
  const on = onHost(host);
  const port = (metric: string) => `sum by (device, port) (rate(${metric}${on}[${window}]))`;
  const nic = (metric: string) => `sum by (device) (rate(${metric}${on}[${window}]))`;
  return {
    sent: port("fabric_port_transmit_bytes_total"),
    received: port("fabric_port_receive_bytes_total"),
    damaged: port("fabric_port_receive_errors_total"),
    symbols: port("fabric_port_symbol_errors_total"),
    dropped: port("fabric_port_transmit_discards_total"),
    resent: port("fabric_port_adaptive_retransmits_total"),
    sequence: port("fabric_port_sequence_naks_total"),
    timeouts: port("fabric_port_ack_timeouts_total"),
    downs: port("fabric_port_link_downed_total"),
    nic_sent: nic("fabric_nic_transmit_bytes_total"),
    nic_received: nic("fabric_nic_receive_bytes_total"),
    nic_damaged: nic("fabric_nic_receive_errors_total"),
    nic_uncorrectable: nic("fabric_nic_phy_receive_fec_uncorrectable_blocks_total"),
    nic_dropped: nic("fabric_nic_transmit_drops_total"),
    nic_paused: `max by (device) (rate(fabric_nic_receive_pause_seconds_total${on}[${window}]))`,
    nic_pausing: `max by (device) (rate(fabric_nic_transmit_pause_seconds_total${on}[${window}]))`,
    nic_speed: `max by (device) (fabric_nic_speed_bits_per_second${on})`,
    nic_up: `min by (device) (fabric_nic_up${on})`,
  } as const;
}

/** What goes wrong at a port, and what people call it. */
export const PORT_ERRORS: Readonly<Record<string, string>> = {
  damaged: "damaged",
  symbols: "symbol errors",
  dropped: "dropped",
  resent: "sent again",
  sequence: "out of sequence",
  timeouts: "time-outs",
  downs: "link downs",
  nic_damaged: "damaged",
  nic_uncorrectable: "beyond correction",
  nic_dropped: "dropped",
};

export function gpuQuestions(host: string, window: string, length: string) {
  const on = onHost(host);
  const gauge = (metric: string) => `max by (gpu) (${metric}${on})`;
  return {
    busy: gauge("fabric_gpu_utilization_ratio"),
    celsius: gauge("fabric_gpu_temperature_celsius"),
    watts: gauge("fabric_gpu_power_watts"),
    hertz: gauge("fabric_gpu_sm_clock_hertz"),
    held: gauge("fabric_gpu_clock_event_reasons"),
    xid: gauge("fabric_gpu_xid_last"),
    ecc: `max by (gpu) (increase(fabric_gpu_ecc_uncorrected_errors_total${on}[${length}]))`,
    replays: `max by (gpu) (rate(fabric_gpu_pcie_replays_total${on}[${window}]))`,
    lanes: gauge("fabric_gpu_pcie_lanes"),
    lanes_max: gauge("fabric_gpu_pcie_lanes_max"),
  } as const;
}

/** NVML's reasons for a clock that are no rest and no wish of the user. */
const CLOCK_BITS: readonly (readonly [number, string])[] = [
  [0x4, "power cap"],
  [0x8, "hardware slowdown"],
  [0x20, "heat (driver)"],
  [0x40, "heat (hardware)"],
  [0x80, "power brake"],
];

/** What holds a GPU's clock down; empty: nothing that matters. */
export function clockWords(bits: number | undefined): string {
  if (bits === undefined || !(bits > 0)) return "";
  return CLOCK_BITS.filter(([mask]) => Math.floor(bits / mask) % 2 === 1)
    .map(([, word]) => word)
    .join(", ");
}

export function agentQuestions(host: string) {
  const on = onHost(host);
  const lost = "15m";
  return {
    version: `max by (version) (fabric_agent_build_info${on})`,
    started: `max(fabric_agent_start_time_seconds${on})`,
    up: `max by (source) (fabric_agent_source_up${on})`,
    took: `max by (source) (fabric_agent_source_duration_seconds${on})`,
    readings: `max by (source) (fabric_agent_source_readings${on})`,
    missing: `sum by (source) (fabric_agent_source_missing${on})`,
    delivers: `max(fabric_agent_service_up${on})`,
    waiting: `max(fabric_agent_spool_bytes${on})`,
    behind: `max(fabric_agent_spool_oldest_age_seconds${on})`,
    dropped: `sum(increase(fabric_agent_dropped_samples_total${on}[${lost}]))`,
  } as const;
}

// --- answers ---------------------------------------------------------------------------------------

export interface Curve {
  readonly times: readonly number[];
  readonly values: readonly number[];
}

const NOTHING: Curve = { times: [], values: [] };

/** Curves by question and place: `curves.of("sent", "mlx5_0", "1")`. */
export class Curves {
  private readonly found = new Map<string, Curve>();

  constructor(series: readonly Series[]) {
    for (const one of series) {
      const { what, device, port, gpu } = one.labels;
      this.found.set(JSON.stringify([what, device ?? gpu, port]), one);
    }
  }

  of(what: string, place: string, port?: string): Curve {
    return this.found.get(JSON.stringify([what, place, port])) ?? NOTHING;
  }

  /** The newest value; undefined: not measured. */
  last(what: string, place: string, port?: string): number | undefined {
    return this.of(what, place, port).values.at(-1);
  }
}

/** One curve of several: their sum where any of them is known. */
export function summed(curves: readonly Curve[]): Curve {
  const sums = new Map<number, number>();
  for (const { times, values } of curves)
    times.forEach((time, place) => {
      const value = values[place];
      if (value !== undefined && Number.isFinite(value))
        sums.set(time, (sums.get(time) ?? 0) + value);
    });
  const times = [...sums.keys()].sort((a, b) => a - b);
  return { times, values: times.map((time) => sums.get(time) ?? 0) };
}

export const mean = (curve: Curve): number =>
  curve.values.length
    ? curve.values.reduce((sum, value) => sum + value, 0) / curve.values.length
    : Number.NaN;
