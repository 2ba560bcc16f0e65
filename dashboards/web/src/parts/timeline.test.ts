import { describe, expect, it } from "vitest";
import {
  barAt,
  brushed,
  gapsOf,
  limitsOf,
  moved,
  nearest,
  SPAN_SECONDS_MIN,
  timeTicks,
  toBars,
  toTime,
  toX,
  valueTicks,
  zoomed,
} from "./timeline";

const field = { span: { from: 1000, to: 1100 }, left: 90, width: 500 };

describe("one clock", () => {
  it("turns times into places and back", () => {
    expect(toX(field, 1000)).toBe(90);
    expect(toX(field, 1100)).toBe(590);
    expect(toTime(field, toX(field, 1042))).toBeCloseTo(1042, 9);
  });

  it("selects what was dragged over, either way, and no more than is seen", () => {
    expect(brushed(field, 190, 290)).toEqual({ from: 1020, to: 1040 });
    expect(brushed(field, 290, 190)).toEqual({ from: 1020, to: 1040 });
    expect(brushed(field, -300, 140)).toEqual({ from: 1000, to: 1010 });
  });

  it("takes a small drag for a click, and no span that is too short to be drawn", () => {
    expect(brushed(field, 190, 192)).toBeUndefined();
    expect(brushed({ ...field, span: { from: 0, to: 1 } }, 100, 106)).toBeUndefined();
  });

  it("zooms around the moment under the cursor", () => {
    const near = zoomed(field.span, 1025, 0.5);
    expect(near).toEqual({ from: 1012.5, to: 1062.5 });
    expect(toX({ ...field, span: near }, 1025)).toBeCloseTo(toX(field, 1025), 9);
    const nearest = zoomed(field.span, 1025, 1e-9);
    expect(nearest.to - nearest.from).toBeCloseTo(SPAN_SECONDS_MIN, 9);
  });

  it("moves without changing its length", () => {
    expect(moved(field.span, -30)).toEqual({ from: 970, to: 1070 });
  });
});

describe("ticks", () => {
  it("are round moments, not more than fit", () => {
    const { step, times } = timeTicks({ from: 1003, to: 1190 }, 8);
    expect(step).toBe(30);
    expect(times).toEqual([1020, 1050, 1080, 1110, 1140, 1170]);
  });

  it("fall on the reader's midnight", () => {
    const ahead = 5.5 * 3600;
    const { step, times } = timeTicks({ from: 0, to: 3 * 86_400 }, 3, ahead);
    expect(step).toBe(86_400);
    expect(times.map((time) => (time + ahead) % 86_400)).toEqual(times.map(() => 0));
  });

  it("show parts of a second and years alike", () => {
    expect(timeTicks({ from: 10, to: 10.4 }, 5).step).toBeCloseTo(0.1, 9);
    expect(timeTicks({ from: 0, to: 4e8 }, 6).times.length).toBeLessThanOrEqual(7);
  });

  it("of values are 1, 2 or 5 times a power of ten", () => {
    expect(valueTicks(0, 12.5, 3)).toEqual([0, 5, 10]);
    expect(valueTicks(0, 0.31, 3)).toEqual([0, 0.2]);
    expect(valueTicks(41, 58, 3)).toEqual([50]);
    expect(valueTicks(0, 0, 3)).toEqual([0]);
  });
});

describe("limits", () => {
  it("begin at zero, or near the values", () => {
    const above = limitsOf([3, null, 5], true);
    expect(above.low).toBe(0);
    expect(above.high).toBeCloseTo(5.3, 9);
    const near = limitsOf([41, 58], false);
    expect(near.low).toBeGreaterThan(30);
    expect(near.high).toBeGreaterThan(58);
  });

  it("of nothing, or of zeros only, can still be drawn", () => {
    expect(limitsOf([null, Number.NaN], true)).toEqual({ low: 0, high: 1 });
    expect(limitsOf([0, 0], true)).toEqual({ low: 0, high: 1 });
  });
});

describe("nearest", () => {
  const times = [10, 20, 30];
  it("finds the one at either side", () => {
    expect(nearest(times, 24, 10)).toBe(1);
    expect(nearest(times, 26, 10)).toBe(2);
    expect(nearest(times, 9, 10)).toBe(0);
  });
  it("finds nothing that is too far", () => {
    expect(nearest(times, 50, 10)).toBeUndefined();
    expect(nearest([], 50, 10)).toBeUndefined();
  });
});

describe("bars", () => {
  const stretch = (from: number, step: number | null) => ({
    from,
    to: from + 5,
    step,
    parts: step === null ? [] : [step],
  });

  it("reach back as far as the step was long", () => {
    const bars = toBars([stretch(0, 3), stretch(5, null), stretch(10, null), stretch(15, 7)]);
    expect(bars.map(({ from, to }) => [from, to])).toEqual([
      [-3, 5],
      [8, 20],
    ]);
  });

  it("never cover the bar before", () => {
    const bars = toBars([stretch(0, 3), stretch(5, 12)]);
    expect(bars[1]?.from).toBe(5);
  });

  it("have gaps between them, of which the long ones are found", () => {
    const bars = [
      { from: 10, to: 20, parts: [] },
      { from: 22, to: 30, parts: [] },
    ];
    expect(gapsOf(bars, { from: 0, to: 60 }, 5)).toEqual([
      { from: 0, to: 10 },
      { from: 30, to: 60 },
    ]);
    expect(gapsOf([], { from: 0, to: 60 }, 5)).toEqual([{ from: 0, to: 60 }]);
    expect(gapsOf(bars, { from: 12, to: 18 }, 1)).toEqual([]);
  });

  it("leave time without steps empty", () => {
    const bars = toBars([stretch(0, 3), stretch(5, null), stretch(10, null)]);
    expect(barAt(bars, 4)?.parts).toEqual([3]);
    expect(barAt(bars, 7)).toBeUndefined();
  });
});
