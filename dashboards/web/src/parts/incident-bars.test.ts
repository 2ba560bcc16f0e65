import { describe, expect, it } from "vitest";
import { barsOf } from "./incident-bars";

const NS = 1e9;
const CLOSED = {
  state: "closed",
  since_ns: 1500 * NS,
  until_ns: 1561 * NS,
  last_seen_ns: 1570 * NS,
  earlier_stretches: [{ since_ns: 100 * NS, until_ns: 173 * NS }],
} as const;

describe("barsOf", () => {
  it("has a bar for each stretch, and none for the time between", () => {
    expect(barsOf(CLOSED, 9000)).toEqual([
      { from: 100, to: 173 },
      { from: 1500, to: 1561 },
    ]);
  });
  it("draws the present one to now while it lasts, and never backwards", () => {
    const open = { ...CLOSED, state: "open", until_ns: null } as const;
    expect(barsOf(open, 1600).at(-1)).toEqual({ from: 1500, to: 1600 });
    expect(barsOf(open, 1400).at(-1)).toEqual({ from: 1500, to: 1500 });
  });
});
