import { describe, expect, it } from "vitest";
import type { IncidentShort } from "../api/incidents";
import type { Cell, RankPlace, Rhythm, Ways } from "../api/matrix";
import { gridOf } from "./matrix-grid";
import { rhythmWords } from "./matrix-rhythm-words";
import {
  accused,
  called,
  checkWords,
  during,
  endpoint,
  everybody,
  headline,
  isOnWay,
  stopsOf,
} from "./matrix-words";

function cell(source: string, target: string, bytes: number, speed: number | null = bytes): Cell {
  return {
    source,
    target,
    bytes,
    bytes_per_second: bytes,
    transfer_bytes_per_second: speed,
    how: "modelled",
    measured_bytes: 0,
    counted_bytes: null,
    is_local: false,
  };
}

describe("the headline", () => {
  it("states that all is even", () => {
    const grid = gridOf([cell("a", "b", 1e9), cell("b", "c", 1.01e9), cell("c", "a", 1e9)]);
    expect(headline(grid, "host", "bytes")).toBe(
      "Even: each of 3 pairs between hosts carries about 1 GB.",
    );
    expect(headline(grid, "host", "speed")).toContain("Even: while transferring");
  });

  it("names the hottest pair, the sender and the receiver", () => {
    const grid = gridOf([cell("0", "1", 3e9), cell("1", "2", 1e9), cell("2", "0", 1e9)]);
    expect(headline(grid, "rank", "bytes")).toBe(
      "Rank 0 → rank 1 carries the most: 3 GB, 3 × the median pair. Rank 0 sends 3 × the median. Rank 1 receives 3 × the median.",
    );
  });

  it("leaves names of hosts as they are", () => {
    const grid = gridOf([cell("n0", "n1", 3e9), cell("n1", "n2", 1e9), cell("n2", "n0", 1e9)]);
    expect(headline(grid, "host", "bytes")).toMatch(/^n0 → n1 carries .* n0 sends 3 ×/);
  });

  it("distinguishes a slow link from a slow sender, a slow receiver and a slow rail", () => {
    const ring = ["a", "b", "c", "d", "e"];
    const pairs = ring.flatMap((one) =>
      ring.filter((other) => other !== one).map((other) => [one, other] as const),
    );
    const speeds = (isSlow: (from: string, to: string) => boolean) =>
      gridOf(pairs.map(([from, to]) => cell(from, to, 1e9, isSlow(from, to) ? 10e9 : 40e9)));
    const line = (isSlow: (from: string, to: string) => boolean) =>
      headline(speeds(isSlow), "host", "speed");
    expect(line((from, to) => from === "a" && to === "b")).toContain("the only slow pair");
    expect(line((from) => from === "c")).toContain("All 4 slow pairs are sent by c.");
    expect(line((_, to) => to === "d")).toContain("All 4 slow pairs are received by d.");
    expect(line((from, to) => from + to === "ab" || from + to === "cd")).toContain(
      "2 of 20 pairs are slow, with no end in common.",
    );
    const rails = gridOf([
      cell("a/x0", "b/x0", 1e9, 10e9),
      cell("b/x0", "a/x0", 1e9, 10e9),
      cell("a/x1", "b/x1", 1e9, 40e9),
      cell("b/x1", "a/x1", 1e9, 40e9),
    ]);
    expect(headline(rails, "nic", "speed")).toContain("between NICs x0: a rail");
  });

  it("is honest where nothing is known", () => {
    expect(headline(gridOf([]), "host", "bytes")).toBe("Nothing was sent.");
    expect(headline(gridOf([cell("a", "b", 1, null)]), "host", "speed")).toBe(
      "No record times these transfers.",
    );
  });
});

describe("names", () => {
  const ranks: RankPlace[] = [
    { rank: 0, host: "n0", gpu: "0", device: "mlx5_0" },
    { rank: 1, host: "n0", gpu: "1", device: "mlx5_1" },
    { rank: 2, host: "n1", gpu: "0", device: null },
    { rank: 3, host: null, gpu: null, device: null },
  ];
  const incident = (culprit: IncidentShort["culprit"]) =>
    ({ culprit, state: "closed", since_ns: 10, until_ns: 20 }) as unknown as IncidentShort;

  it("are written for people", () => {
    expect(called("gpu", "n0/3")).toBe("n0 GPU 3");
    expect(called("nic", "n0/mlx5_0")).toBe("n0 mlx5_0");
    expect(called("rail", "1")).toBe("rail 1");
  });

  it("of an incident are found on every axis", () => {
    const nic = incident({ host: "n0", device: "mlx5_1", port: "1" });
    const on = (by: "host" | "nic" | "rank" | "gpu" | "rail", names: string[], one = nic) =>
      accused(one, by, names, ranks, "j");
    expect(on("host", ["n0", "n1"])).toEqual(["n0"]);
    expect(on("nic", ["n0/mlx5_0", "n0/mlx5_1"])).toEqual(["n0/mlx5_1"]);
    expect(on("rank", ["0", "1", "2"])).toEqual(["1"]);
    expect(on("gpu", ["n0/0", "n0/1"])).toEqual(["n0/1"]);
    expect(on("rail", ["0"])).toEqual([]);
    const host = incident({ host: "n0" });
    expect(on("rank", ["0", "1", "2"], host)).toEqual(["0", "1"]);
    expect(on("nic", ["n0/mlx5_0", "n0/mlx5_1"], host)).toEqual(["n0/mlx5_0", "n0/mlx5_1"]);
    const rank = incident({ job: "j", rank: 2, host: "n1", gpu: 0 });
    expect(on("rank", ["0", "1", "2"], rank)).toEqual(["2"]);
    const other = incident({ job: "other", rank: 2, host: "n9" });
    expect(on("rank", ["0", "1", "2"], other)).toEqual([]);
  });

  it("of everybody are those of the ranks and of the balance", () => {
    expect(everybody("nic", ranks, [])).toEqual(["n0/mlx5_0", "n0/mlx5_1"]);
    expect(everybody("rank", ranks, [])).toEqual(["0", "1", "2", "3"]);
  });

  it("become ends of a way where the place is known", () => {
    expect(endpoint("rank", "1", ranks)).toBe("n0/mlx5_1");
    expect(endpoint("gpu", "n1/0", ranks)).toBe("n1");
    expect(endpoint("rank", "3", ranks)).toBeUndefined();
    expect(endpoint("rail", "0", ranks)).toBeUndefined();
  });

  it("count if their trouble lay in the time", () => {
    const one = incident({ host: "n0" });
    expect(during([one], 0, 5)).toEqual([]);
    expect(during([one], 15, 30)).toEqual([one]);
    expect(during([one], 21, 30)).toEqual([]);
    expect(during([{ ...one, state: "open" }], 21, 30)).toHaveLength(1);
  });
});

describe("a way", () => {
  const hop = (source: string, target: string) => ({
    link: `${source}|${target}`,
    source,
    target,
    rate_bits_per_second: null,
  });
  const ways: Ways = {
    source: "n0/mlx5_0/1",
    target: "n1/mlx5_0/1",
    hops: 2,
    count: 2,
    is_cut: false,
    reason: "",
    paths: [
      [hop("n0/mlx5_0/1", "leaf/leaf/E0"), hop("leaf/leaf/E1", "n1/mlx5_0/1")],
      [hop("n0/mlx5_0/1", "leaf2/leaf2/E0"), hop("leaf2/leaf2/E1", "n1/mlx5_0/1")],
    ],
  };

  it("puts equal ways side by side", () => {
    expect(stopsOf(ways).map((stops) => stops.map((stop) => stop.label))).toEqual([
      ["n0 mlx5_0"],
      ["leaf", "leaf2"],
      ["n1 mlx5_0"],
    ]);
    expect(stopsOf({ ...ways, paths: [] })).toEqual([[]]);
  });

  it("meets the incident at one of its ports", () => {
    const at = (culprit: IncidentShort["culprit"]) =>
      isOnWay({ culprit } as unknown as IncidentShort, [ways]);
    expect(at({ host: "n1", device: "mlx5_0" })).toBe(true);
    expect(at({ host: "n1", device: "mlx5_1" })).toBe(false);
    expect(at({ switch: "leaf2", switch_port: "E1" })).toBe(true);
    expect(at({ switch: "leaf2", switch_port: "E7" })).toBe(false);
    expect(at({ host: "n1", gpu: 3 })).toBe(false);
  });
});

describe("trust and rhythm", () => {
  it("states what a ratio means", () => {
    expect(checkWords(0.98)).toContain("agrees");
    expect(checkWords(0.6)).toContain("40 %");
    expect(checkWords(1.2)).toContain("more than the NICs counted");
  });

  const rhythm: Rhythm = {
    from_ns: 0,
    period_ns: 2e9,
    byte_period_ns: 2e9,
    correlation: 0.9,
    periods: 30,
    duty: 0.4,
    phases: [],
    odd: [],
    odd_left_out: 0,
    hosts: [],
  };

  it("states how traffic repeats", () => {
    expect(rhythmWords(rhythm)).toBe(
      "A step takes 2 s in the median. The byte rate repeats with it. Ranks are inside collectives, waiting included, for 40 % of the time. All of 30 periods were alike.",
    );
    expect(rhythmWords({ ...rhythm, byte_period_ns: 5e8 })).toContain("repeats 4 times a step");
    expect(rhythmWords({ ...rhythm, byte_period_ns: 7e9, correlation: 0.4 })).toContain(
      "every 7 s, weakly: steps were not alike",
    );
    const odd = { kind: "long", start_ns: 0, end_ns: 1, periods: 3 } as const;
    expect(rhythmWords({ ...rhythm, odd: [odd], odd_left_out: 2 })).toContain(
      "Odd, of 30 periods: 1 long, 2 more.",
    );
  });
});
