import { expect, test } from "vitest";
import { logTicks, meantAt, riseOf } from "./timeline-dots";

const FIELD = { span: { from: 100, to: 200 }, left: 50, width: 100 };
const SETS = [
  {
    at: [110, 150],
    said: ["number 1", "number 2"],
    series: [
      { label: "wait", colour: "wait", seconds: [0.01, 0.1] },
      { label: "transfer", colour: "transfer", seconds: [1, 0.001] },
    ],
  },
];

test("ticks are powers of ten, or finer where that would be one", () => {
  expect(logTicks(0.0005, 3)).toEqual([0.001, 0.01, 0.1, 1]);
  expect(logTicks(0.015, 0.3)).toEqual([0.02, 0.05, 0.1, 0.2]);
});

test("durations rise by their powers of ten, and what is out of sight lies at the edge", () => {
  const rise = riseOf(0.001, 1, true);
  expect(rise.limits).toEqual({ low: -3, high: 0 });
  expect(rise.of(0.1)).toBeCloseTo(-1);
  expect(rise.of(0)).toBe(-3);
  expect(rise.of(50)).toBe(0);
  expect(rise.ticks.map(rise.back)).toEqual([0.001, 0.01, 0.1, 1]);
});

test("lateness may be negative and rises evenly", () => {
  const rise = riseOf(-0.01, 0.05, false);
  expect(rise.of(0.02)).toBe(0.02);
  expect(rise.of(9)).toBe(0.05);
  expect(rise.limits).toEqual({ low: -0.01, high: 0.05 });
});

test("the dot near the hand is meant, and far away none", () => {
  const height = (seconds: number) => 100 * (1 - seconds);
  expect(meantAt(SETS, FIELD, height, 62, 1)).toEqual({ set: 0, place: 0, x: 60, y: 0 });
  expect(meantAt(SETS, FIELD, height, 99, 91)?.place).toBe(1);
  expect(meantAt(SETS, FIELD, height, 140, 50)).toBeUndefined();
});
