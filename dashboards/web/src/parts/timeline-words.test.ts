import { describe, expect, it } from "vitest";
import { digits } from "../format";
import { clockText, lanesOf, summaryOf } from "./timeline-words";

const at = (hours: number, minutes: number, seconds: number) =>
  new Date(2026, 10, 15, hours, minutes, 0).getTime() / 1000 + seconds;

describe("moments", () => {
  it("are as fine as the ticks", () => {
    expect(clockText(at(9, 4, 5.25), 600)).toBe("09:04");
    expect(clockText(at(9, 4, 5.25), 5)).toBe("09:04:05");
    expect(clockText(at(9, 4, 5.25), 0.1)).toBe("09:04:05.2");
    expect(clockText(at(9, 4, 5.25), 0.01)).toBe("09:04:05.25");
  });

  it("are days at midnight", () => {
    expect(clockText(at(0, 0, 0), 21_600)).toMatch(/15/);
    expect(clockText(at(0, 0, 0), 600)).toBe("00:00");
  });
});

describe("lanes", () => {
  it("put what overlaps below each other, and what follows beside", () => {
    const { lanes, count } = lanesOf([
      { from: 30, to: 40 },
      { from: 0, to: 20 },
      { from: 10, to: 25 },
    ]);
    expect(lanes).toEqual([0, 0, 1]);
    expect(count).toBe(2);
  });
});

describe("the summary of lines", () => {
  it("names the lowest, the highest and the last", () => {
    const lines = [
      { label: "own", values: [1, null, 5, 3] },
      { label: "median", values: [2, 2] },
      { label: "none", values: [null] },
    ];
    expect(summaryOf("Clock", lines, digits)).toBe(
      "Clock: own from 1 to 5, 3 at the end; median 2 throughout; none: nothing known.",
    );
  });
});
