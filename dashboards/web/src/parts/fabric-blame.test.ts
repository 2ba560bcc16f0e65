import { describe, expect, it } from "vitest";
import type { RankRow, StepsCompared } from "../api/steps";
import type { Topology } from "../api/topology";
import {
  accusedMarks,
  accusedRanks,
  blameAt,
  blameWords,
  flowsOf,
  placesOf,
  spentIn,
  wayBetween,
  waysOf,
  wholeWords,
} from "./fabric-blame";
import { pointsOf, upTo } from "./fabric-flows";
import { graphOf } from "./fabric-graph";
import { layoutOf } from "./fabric-layout";
import { type Arc, arcsOf, drawnRanks } from "./step-compare-words";

const MS = 1e6;
const node = (name: string, kind: string, tier: number | null) => ({
  name,
  kind,
  tier,
  rail: null,
  pod: null,
  attributes: {},
});
const link = (a: string, b: string) => ({ id: `${a}|${b}`, a, b, is_up: true });
/** Three hosts with two NICs, a leaf for each NIC's rail, and two spines above. */
const graph = graphOf({
  nodes: [
    ...["n0", "n1", "n2"].map((name) => node(name, "host", null)),
    ...["leaf0", "leaf1"].map((name) => node(name, "switch", 0)),
    ...["spine0", "spine1"].map((name) => node(name, "switch", 1)),
  ],
  ports: [],
  links: [
    ...["n0", "n1", "n2"].flatMap((host, place) => [
      link(`${host}/mlx5_0/1`, `leaf0/leaf0/p${place}`),
      link(`${host}/mlx5_1/1`, `leaf1/leaf1/p${place}`),
    ]),
    ...["leaf0", "leaf1"].flatMap((leaf, place) =>
      ["spine0", "spine1"].map((spine, up) =>
        link(`${leaf}/${leaf}/u${up}`, `${spine}/${spine}/d${place}`),
      ),
    ),
  ],
  conflicts: [],
} as unknown as Topology);

const names = (links: readonly number[]) => links.map((index) => graph.links[index]?.id);

const row = (rank: number, own: number, wait: number): RankRow => ({
  rank,
  spans: [
    { part: "own", start_ns: 0, end_ns: own * MS },
    { part: "wait", start_ns: own * MS, end_ns: (own + wait) * MS },
  ],
});
const compared = (rank: number, host: string) => ({
  rank,
  host,
  excess: {},
  is_accused: rank === 0,
});
const data = {
  rows_slow: [row(0, 130, 0), row(1, 100, 31), row(2, 100, 21)],
  rows_normal: [row(0, 100, 0), row(1, 100, 1), row(2, 100, 1)],
  without: [
    {
      what: "rank",
      ranks: [0],
      title: "without rank 0",
      step_ns: 111 * MS,
      saved_ns: 20 * MS,
      rows: [row(0, 110, 0), row(1, 100, 11), row(2, 100, 1)],
    },
  ],
  ranks: [compared(0, "n0"), compared(1, "n1"), compared(2, "n0")],
  flows: [
    { source: 0, target: 1, excess_ns: 30 * MS },
    { source: 0, target: 2, excess_ns: 20 * MS },
  ],
  accused: [
    { cause: "slow_link", culprit: { host: "n0", device: "mlx5_1" }, summary: "slow", ranks: [0] },
    { cause: "straggler", culprit: { host: "elsewhere" }, summary: "late", ranks: [9] },
  ],
} as unknown as StepsCompared;

const NICS = [
  { rank: 0, host: "n0", device: "mlx5_1" },
  { rank: 1, host: "n1", device: "mlx5_1" },
  { rank: 2, host: "moved", device: "mlx5_1" },
] as never;
const places = placesOf(data.ranks, NICS);
const at = (moment: number, without?: number) => {
  const drawn = drawnRanks(data, without);
  const ways = waysOf(graph, arcsOf(data, drawn), places, accusedRanks(data));
  return blameAt(ways, drawn, data, moment * MS, 131 * MS);
};

describe("blame over the fabric", () => {
  it("goes by the ranks' own NICs, and through no other host", () => {
    expect(
      names(wayBetween(graph, { host: "n0", device: "mlx5_1" }, { host: "n1", device: "mlx5_1" })),
    ).toEqual(["n0/mlx5_1/1|leaf1/leaf1/p0", "n1/mlx5_1/1|leaf1/leaf1/p1"]);
    const across = wayBetween(
      graph,
      { host: "n0", device: "mlx5_0" },
      { host: "n1", device: "mlx5_1" },
    );
    expect(across).toHaveLength(4);
    expect(names(across).every((one) => !one?.includes("n2"))).toBe(true);
  });

  it("uses any NIC where the rank's is not known, and says where no cable joins two", () => {
    expect(
      wayBetween(graph, { host: "n0", device: "" }, { host: "n2", device: "gone" }),
    ).toHaveLength(2);
    expect(wayBetween(graph, { host: "n0", device: "" }, { host: "nowhere", device: "" })).toEqual(
      [],
    );
  });

  it("takes the NIC of a rank only from where it ran", () => {
    expect(places.get(0)).toEqual({ host: "n0", device: "mlx5_1" });
    expect(places.get(2)).toEqual({ host: "n0", device: "" });
  });

  it("counts what has passed of a part up to a moment", () => {
    const one = row(1, 100, 31);
    expect(spentIn(one, "wait", 90 * MS)).toBe(0);
    expect(spentIn(one, "wait", 110 * MS)).toBe(10 * MS);
    expect(spentIn(undefined, "wait", 110 * MS)).toBe(0);
  });

  it("grows as the waiting goes by, from nothing to all of it", () => {
    expect(at(50).map(({ now_ns }) => now_ns)).toEqual([0, 0]);
    const [half] = at(100 + 31 / 2);
    expect(half?.now_ns).toBeCloseTo(15 * MS);
    const whole = at(131);
    expect(whole[0]?.now_ns).toBeCloseTo(30 * MS);
    expect(whole[0]?.way).toMatchObject({ from: "n0", to: "n1", ranks: 1, isOneHost: false });
    expect(whole[1]?.way).toMatchObject({ from: "n0", to: "n0", links: [], isOneHost: true });
  });

  it("keeps without the culprit what the replay leaves", () => {
    const [first, second] = at(131, 0);
    expect(first?.end_ns).toBeCloseTo(10 * MS);
    expect(second?.end_ns).toBe(0);
    expect(flowsOf(at(131, 0))).toHaveLength(1);
    expect(wholeWords(at(131, 0))).toBe(
      "From n0, which a verdict accuses, to ranks on 1 host: up to 10 ms longer in a step.",
    );
  });

  it("says the same in words", () => {
    const [first, second] = at(131);
    expect(first && blameWords(graph, first)).toBe(
      "+30 ms waiting of 1 rank, over n0 mlx5_1, leaf1",
    );
    expect(second && blameWords(graph, second)).toBe("+20 ms waiting of 1 rank, within the host");
    expect(wholeWords([])).toBe("No excess is left.");
  });

  it("names no source where no verdict accuses one, however much went out from it", () => {
    const drawn = drawnRanks(data, undefined);
    const ways = waysOf(graph, arcsOf(data, drawn), places, new Set());
    const words = wholeWords(blameAt(ways, drawn, data, 131 * MS, 131 * MS));
    expect(words).toContain("No verdict accuses");
    expect(words).not.toContain("n0");
    expect(
      waysOf(graph, arcsOf(data, drawn), places, new Set([2])).map((one) => one.isAccused),
    ).toEqual([false, false]);
  });

  it("marks those that a verdict accuses, where they have a place", () => {
    const marks = accusedMarks(graph, data);
    expect(marks).toHaveLength(1);
    expect(marks[0]).toMatchObject({ cause: "slow link", focus: { kind: "link" } });
  });
});

describe("a flow", () => {
  it("is drawn from its source to its target, through switches", () => {
    const layout = layoutOf(graph, "lines", 1.4);
    const [flow] = flowsOf(at(131));
    const wires = new Map(layout.strands.map((wire) => [wire.links[0], wire]));
    const points = pointsOf(
      graph,
      layout,
      flow ?? { from: "", links: [] },
      (one) => wires.get(one),
      () => undefined,
    );
    const host = (name: string) => layout.boxes[graph.nodeOf.get(name) ?? -1]?.[0];
    const [start, end] = [points[0], points.at(-1)];
    const isOn = (name: string, x = Number.NaN) => {
      const box = host(name);
      return box !== undefined && x >= box.x && x <= box.x + box.w;
    };
    expect(isOn("n0", start?.[0])).toBe(true);
    expect(isOn("n1", end?.[0])).toBe(true);
  });

  it("reaches as far as its share of the whole way", () => {
    const way = [
      [0, 0],
      [10, 0],
      [10, 10],
    ] as const;
    expect(upTo(way, 0)).toEqual([
      [0, 0],
      [0, 0],
    ]);
    expect(upTo(way, 0.75)).toEqual([
      [0, 0],
      [10, 0],
      [10, 5],
    ]);
    expect(upTo(way, 2).at(-1)).toEqual([10, 10]);
    expect(upTo([], 0.5)).toEqual([]);
  });
});

it("an arc without a known host is left out", () => {
  const arc = { part: "wait", source: 7, target: 8, excess_ns: 1 } as Arc;
  expect(waysOf(graph, [arc], places, new Set())).toEqual([]);
});
