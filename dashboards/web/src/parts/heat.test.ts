import { describe, expect, it } from "vitest";
import type { Heat } from "../api/heat";
import {
  brightness,
  columnsOf,
  fitted,
  latestOf,
  memberAt,
  paint,
  paletteOf,
  quantile,
  recordsOf,
  rowAt,
  rowOfRank,
  rowsOf,
  scaleOf,
  shadesOf,
  stepAt,
  stepsIn,
  valueAtShade,
} from "./heat";

/** Ranks two to a host; steps of 10 s from 100 s on. */
function made(rows: readonly (readonly number[])[], quantity: Heat["quantity"] = "late"): Heat {
  return {
    quantity,
    ranks: rows.map((_, rank) => ({
      rank,
      host: `node${rank >> 1}`,
      gpu: String(rank & 1),
      device: "mlx5_0",
    })),
    steps: (rows[0] ?? []).map((_, step) => ({
      from: 100 + 10 * step,
      to: 110 + 10 * step,
    })),
    stepsInOne: 1,
    values: Float32Array.from(rows.flat()),
  };
}

const NONE = Number.NaN;
const late = made([
  [0, 0.1, 0, 0],
  [0.2, 3, 4, 5],
  [0, 0, NONE, 0],
  [9, 0, 0, 0],
]);

describe("rows", () => {
  it("are ranks in order, or the brightest first", () => {
    expect(rowsOf(late, "rank", "rank").map((row) => row.rank)).toEqual([0, 1, 2, 3]);
    expect(rowsOf(late, "worst", "rank").map((row) => row.rank)).toEqual([1, 3, 0, 2]);
  });

  it("are hosts, each with the worst of its ranks", () => {
    const rows = rowsOf(late, "worst", "host");
    expect(rows.map((row) => row.host)).toEqual(["node0", "node1"]);
    const [first] = rows;
    expect(first && memberAt(late, first, 0)).toBe(1);
    expect(rowOfRank(late, rows, 3)).toBe(1);
    expect(rowOfRank(late, rows, 99)).toBe(-1);
  });
});

describe("the scale", () => {
  it("does not make noise bright: a tenth of a step at least", () => {
    const calm = made([
      [0.0001, 0.0002],
      [0, 0.0003],
    ]);
    expect(scaleOf(calm)).toEqual({ low: 0.1, high: 1.1 });
  });

  it("begins where durations usually are", () => {
    const steps = made([[3, 3, 3, 3, 3, 3, 12]], "step");
    const { low, high } = scaleOf(steps);
    expect(low).toBe(3.1);
    expect(high).toBeGreaterThan(10);
  });

  it("shows small values beside large ones, and maps values to brightness", () => {
    const scale = { low: 2, high: 10 };
    expect(brightness(scale, 2.5)).toBe(0.25);
    expect(brightness(scale, 99)).toBe(1);
    expect(brightness(scale, -5)).toBe(0);
    expect(valueAtShade(scale, brightness(scale, 4))).toBeCloseTo(4, 9);
  });

  it("can be had of nothing", () => {
    const { low, high } = scaleOf(made([[]]));
    expect(high).toBeGreaterThan(low);
    expect(quantile([], 0.5)).toBe(0);
  });
});

describe("shades", () => {
  const shades = shadesOf(late, rowsOf(late, "rank", "rank"), { low: 0, high: 4 });

  it("distinguish what was not seen from what was early", () => {
    expect(shades.bytes[2 * 4 + 2]).toBe(0);
    expect(shades.bytes[2 * 4]).toBe(1);
  });

  it("end at the bright end", () => {
    expect(shades.bytes[1 * 4 + 2]).toBe(255);
    expect(shades.bytes[3 * 4]).toBe(255);
  });

  it("keep the one bright cell where rows share a pixel", () => {
    const many = made(Array.from({ length: 1000 }, (_, rank) => [rank === 633 ? 8 : 0]));
    const small = fitted(shadesOf(many, rowsOf(many, "rank", "rank"), { low: 0, high: 4 }), 100);
    expect(small.rows).toBe(100);
    expect([...small.bytes].filter((shade) => shade === 255)).toHaveLength(1);
    expect(small.bytes[63]).toBe(255);
  });
});

describe("columns", () => {
  it("lie where their steps lie in time", () => {
    const { first } = columnsOf(late.steps, { from: 90, to: 150 }, 6);
    expect([...first]).toEqual([-1, 0, 1, 2, 3, -1]);
  });

  it("share a pixel when there is no room", () => {
    const { first, last } = columnsOf(late.steps, { from: 100, to: 140 }, 2);
    expect([...first]).toEqual([0, 2]);
    expect([...last]).toEqual([1, 3]);
  });

  it("leave out what is not in sight", () => {
    const { first } = columnsOf(late.steps, { from: 125, to: 126 }, 3);
    expect([...first]).toEqual([2, 2, 2]);
    expect([...columnsOf(late.steps, { from: 900, to: 901 }, 2).first]).toEqual([-1, -1]);
  });
});

describe("the picture", () => {
  const palette = paletteOf((share) => [Math.round(share * 200), 0, 0], [1, 2, 3]);

  it("is a colour for every pixel", () => {
    const rows = rowsOf(late, "rank", "rank");
    const shades = shadesOf(late, rows, { low: 0, high: 4 });
    const pixels = new Uint32Array(4 * 8);
    paint(pixels, 4, 8, shades, columnsOf(late.steps, { from: 100, to: 140 }, 4), palette);
    expect(pixels[2 * 4 + 2]).toBe(palette[255]);
    expect(pixels[3 * 4 + 2]).toBe(palette[255]);
    expect(pixels[4 * 4 + 2]).toBe(palette[0]);
    expect(pixels[0]).toBe(palette[1]);
  });

  it("keeps the brightest where columns share a pixel", () => {
    const shades = shadesOf(late, rowsOf(late, "rank", "rank"), { low: 0, high: 4 });
    const pixels = new Uint32Array(4);
    paint(pixels, 1, 4, shades, columnsOf(late.steps, { from: 100, to: 140 }, 1), palette);
    expect(pixels[3]).toBe(palette[255]);
  });

  it("has opaque little-endian colours", () => {
    expect(palette[0]).toBe(0xff030201);
    expect(palette[255]).toBe(0xff0000c8);
  });
});

describe("finding one's way", () => {
  it("finds the step of a moment, and the row of a place", () => {
    expect(stepAt(late.steps, 100)).toBe(0);
    expect(stepAt(late.steps, 139.9)).toBe(3);
    expect(stepAt(late.steps, 99)).toBe(-1);
    expect(stepAt(late.steps, 140)).toBe(-1);
    expect(stepsIn(late.steps, { from: 105, to: 120 })).toEqual([0, 1]);
    expect(stepsIn(late.steps, { from: 500, to: 600 })).toEqual([0, -1]);
    expect(rowAt(4, 80, 79)).toBe(3);
    expect(rowAt(4, 80, 80)).toBe(-1);
  });
});

describe("records", () => {
  it("show which rank is last, how often, and how late as a rule", () => {
    const records = recordsOf(late);
    expect(records[1]).toEqual({ place: 1, median: 3.5, lastShare: 0.75 });
    expect(records[3]?.lastShare).toBe(0.25);
    expect(latestOf(records)?.place).toBe(1);
  });

  it("blame no rank when none was seen", () => {
    const blind = made([[NONE, NONE]]);
    expect(latestOf(recordsOf(blind))).toBeUndefined();
    expect(recordsOf(blind)[0]?.lastShare).toBe(0);
  });
});
