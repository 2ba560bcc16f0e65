import { describe, expect, it } from "vitest";
import type { Asked } from "../api/job-series";
import {
  collectiveLines,
  comparedLines,
  onGrid,
  portName,
  reasonSegments,
  stepBars,
  timesOf,
  troubleLines,
} from "./job-lines";

const asked = (series: Asked["series"]): Asked => ({ from: 100, step: 5, count: 4, series });
const one = (labels: Record<string, string>, values: number[], times = [100, 105, 110, 115]) => ({
  labels,
  times: times.slice(0, values.length),
  values,
});

describe("a grid of moments", () => {
  it("has a place for each, also where nothing was read", () => {
    const answer = asked([one({ what: "x" }, [1, 3], [100, 110])]);
    expect(timesOf(answer)).toEqual([100, 105, 110, 115]);
    expect(onGrid(answer, answer.series[0])).toEqual([1, null, 3, null]);
    expect(onGrid(answer, undefined)).toEqual([null, null, null, null]);
  });

  it("takes no numbers that are none, and nothing from outside of the range", () => {
    const answer = asked([one({ what: "x" }, [Number.NaN, 9], [100, 900])]);
    expect(onGrid(answer, answer.series[0])).toEqual([null, null, null, null]);
  });
});

describe("lines", () => {
  it("show the rank before the others, and leave out what is not known", () => {
    const answer = asked([
      one({ what: "clock median" }, [2, 2]),
      one({ what: "clock own" }, [1, 1]),
    ]);
    const { lines } = comparedLines(answer, "clock", "rank 7", "the job");
    expect(lines.map((line) => line.label)).toEqual(["rank 7", "median of the job"]);
  });

  it("of collectives are those of the heaviest kind", () => {
    const group = (size: string, value: number) =>
      ["slowest", "median", "skew"].map((what) =>
        one({ operation: "all_reduce", size, what }, [value, value]),
      );
    const found = collectiveLines(asked([...group("4KiB", 0.001), ...group("more", 2)]));
    expect(found?.name).toBe("all_reduce of the largest size");
    expect(found?.data.lines.map((line) => line.values[0])).toEqual([2, 2, 2]);
    expect(collectiveLines(asked([]))).toBeUndefined();
  });

  it("of trouble are the worst ones, by name", () => {
    const { lines } = troubleLines(
      asked([
        one({ host: "a", device: "mlx5_0", port: "1" }, [1, 2]),
        one({ host: "leaf", device: "leaf", port: "Ethernet4" }, [9]),
        one({ host: "c", device: "mlx5_0", port: "1" }, [5]),
      ]),
      2,
    );
    expect(lines.map((line) => line.label)).toEqual(["leaf Ethernet4", "c mlx5_0"]);
    expect(portName({ host: "a", device: "mlx5_0", port: "2" })).toBe("a mlx5_0 2");
  });
});

describe("steps as bars", () => {
  it("are split into three parts, in seconds", () => {
    const bucket = {
      start_ns: 0,
      end_ns: 5e9,
      operations: 1,
      skew_ns: 1,
      transfer_ns: 1,
      steps: 1,
      step_ns: 3e9,
      compute_ns: 1.5e9,
      wait_ns: 0.5e9,
      network_ns: 1e9,
    };
    const empty = { ...bucket, start_ns: 5e9, end_ns: 10e9, steps: 0, step_ns: null };
    expect(stepBars([bucket, empty])).toEqual([{ from: -3, to: 5, parts: [1.5, 0.5, 1] }]);
  });
});

describe("why a clock is low", () => {
  it("is the gravest reason of each moment, in words", () => {
    const answer = asked([one({ what: "reasons" }, [0x4, 0x24, 0x24, 0])]);
    expect(reasonSegments(answer)).toEqual([
      { from: 100, to: 105, label: "at its power limit", tone: "compute", isStrong: false },
      { from: 105, to: 115, label: "clock held down: heat", tone: "bad", isStrong: true },
    ]);
  });
});
