import { describe, expect, it } from "vitest";
import type { RankRow, StepsCompared } from "../api/steps";
import {
  arcPath,
  arcsOf,
  arcWords,
  axisEnd,
  differenceWords,
  drawnRanks,
  orderWords,
  signed,
} from "./step-compare-words";

const MS = 1e6;
const row = (rank: number, own: number, wait: number): RankRow => ({
  rank,
  spans: [
    { part: "own", start_ns: 0, end_ns: own * MS },
    { part: "wait", start_ns: own * MS, end_ns: (own + wait) * MS },
  ],
});
const parts = { own_ns: 1, wait_ns: 1, transfer_ns: 1 };
const data = {
  rows_slow: [row(5, 130, 0), row(4, 100, 30)],
  rows_normal: [row(5, 100, 0), row(4, 100, 1)],
  without: [
    { what: "rank", ranks: [5], title: "", step_ns: 1, saved_ns: 1, rows: [row(5, 101, 0)] },
  ],
  ranks: [
    {
      rank: 5,
      host: "node2",
      gpu: 1,
      slow: parts,
      normal: parts,
      excess: parts,
      beyond_peers_ns: 30 * MS,
      waited_for_ns: 30 * MS,
      role: "late",
      is_accused: true,
    },
  ],
  flows: [
    { source: 5, target: 4, excess_ns: 30 * MS },
    { source: 5, target: 77, excess_ns: 30 * MS },
  ],
  order: { communicator: "0x1", ring: [5, 4, 77], is_assumed: true },
} as unknown as StepsCompared;

describe("a comparison of steps", () => {
  it("draws each rank beside itself, and its replay in place of the slow step", () => {
    const [first, second] = drawnRanks(data, undefined);
    expect(first).toMatchObject({ rank: 5, host: "node2", isAccused: true, role: "late" });
    expect(first?.slow?.spans[0]?.end_ns).toBe(130 * MS);
    expect(first?.normal?.spans[0]?.end_ns).toBe(100 * MS);
    expect(second?.role).toBe("unknown");
    expect(drawnRanks(data, 0)[0]?.slow?.spans[0]?.end_ns).toBe(101 * MS);
    expect(drawnRanks(data, 0)[1]?.slow).toBeUndefined();
  });

  it("keeps one axis for what was and what would have been", () => {
    expect(axisEnd(data)).toBe(130 * MS);
  });

  it("draws only flows between ranks that are drawn", () => {
    const arcs = arcsOf(data, drawnRanks(data, undefined));
    expect(arcs).toEqual([
      { part: "wait", source: 5, target: 4, from: 0, to: 1, excess_ns: 30 * MS, share: 1 },
    ]);
    expect(arcPath(arcs[0] as (typeof arcs)[0], 20, 60)).toMatch(/^M0,10\.0 C.* 2,30\.0$/);
  });

  it("lets the excess of transfers flow from the link that a verdict accuses", () => {
    const rank = (number: number, longer: number) => ({
      ...data.ranks[0],
      rank: number,
      excess: { ...parts, transfer_ns: longer * MS },
    });
    const slow = {
      ...data,
      flows: [],
      without: [{ ...data.without[0], what: "network", ranks: [5] }],
      ranks: [rank(5, 400), rank(4, 300), rank(77, 1)],
    } as unknown as StepsCompared;
    const arcs = arcsOf(slow, drawnRanks(slow, undefined));
    expect(arcs.map(arcWords)).toEqual([
      "transfers of rank 4 took 300 ms longer over the link of rank 5",
    ]);
  });

  it("says whether the ring is known, and how many ranks are not drawn", () => {
    expect(orderWords(data)).toContain("no log names the ring; 1 not drawn");
    expect(orderWords({ ...data, order: null })).toBe("Ranks in their order.");
  });

  it("shows excess with its sign", () => {
    expect([signed(30 * MS), signed(-2 * MS), signed(0), signed(null)]).toEqual([
      "+30 ms",
      "−2 ms",
      "0 s",
      "–",
    ]);
  });
});

describe("differenceWords", () => {
  it.each([
    ["own time beyond its peers", "ns", 1.11e9, "1.11 s"],
    ["fabric_gpu_sm_clock_hertz", "", 1.29e9, "1.29 GHz"],
    ["fabric_gpu_temperature_celsius", "", 89, "89 °C"],
    ["fabric_gpu_energy_joules_total a second", "", 636, "636 W"],
    ["fabric_gpu_thermal_violation_seconds_total a second", "", 0.996, "100 %"],
    ["fabric_port_transmit_bytes_total a second", "", 3.5e8, "350 MB/s"],
    ["fabric_gpu_sm_active_ratio", "", 0.44, "44 %"],
    ["fabric_gpu_clock_event_reasons", "", 32, "clock held down: heat"],
  ])("%s has the unit that its name ends with", (what, unit, value, words) => {
    expect(differenceWords(what, unit, value)).toBe(words);
  });
});
