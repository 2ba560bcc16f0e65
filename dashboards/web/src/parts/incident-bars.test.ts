import { describe, expect, it } from "vitest";
import { barsOf, placed } from "./incident-bars";

const NS = 1e9;

describe("barsOf", () => {
  it("has a bar for each stretch, and none for the time between", () => {
    const confirmed = [
      { since_ns: 100 * NS, until_ns: 173 * NS },
      { since_ns: 1500 * NS, until_ns: 1561 * NS },
    ];
    expect(barsOf({ confirmed })).toEqual([
      { from: 100, to: 173 },
      { from: 1500, to: 1561 },
    ]);
  });
});

describe("placed", () => {
  it("is a share of the time, and is seen also where it is short, or at the end", () => {
    expect(placed({ from: 100, to: 150 }, 100, 200)).toEqual([0, 0.5]);
    expect(placed({ from: 120, to: 120 }, 100, 200)).toEqual([0.2, 0.01]);
    expect(placed({ from: 200, to: 200 }, 100, 200)).toEqual([0.99, 0.01]);
    expect(placed({ from: 100, to: 100 }, 100, 100)).toEqual([0, 0.01]);
  });
});
