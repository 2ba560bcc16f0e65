import { describe, expect, test, vi } from "vitest";
import type { FabricState } from "../api/fabric";

vi.mock("../time", () => ({}));
const { firstOf, joined, wholeOf } = await import("./fabric-moments");

const FOLLOWING = { from: 1_000_007 - 1800, to: 1_000_007, last: 1800 };
const FIXED = { from: 998_207, to: 1_000_007 };

/** Each link's use is the moment's end and its own number. */
function made(ends: readonly number[], links: readonly string[] = ["a|b", "c|d"]): FabricState {
  const values = Float32Array.from(
    ends.flatMap((end) => links.map((id) => end + ["a|b", "c|d", "e|f"].indexOf(id))),
  );
  return {
    times: ends,
    stepSeconds: 30,
    links,
    utilisation: values,
    forward: values,
    backward: values,
    errors: values,
    worstErrors: new Uint8Array(values.length).fill(1),
    errorKinds: ["symbol_errors"],
    pause: values,
    pauseAtMost: values,
    up: values,
  };
}

describe("what is asked for", () => {
  test("the newest moments first, which end now", () => {
    expect(firstOf(FOLLOWING, undefined)).toEqual({ from: 999_887, to: 1_000_007, frames: 4 });
  });

  test("all of a range that follows the clock ends where the next question's moments do", () => {
    const whole = wholeOf(FOLLOWING);
    expect(whole).toEqual({ from: 998_190, to: 999_990, frames: 60 });
    expect(wholeOf({ from: 998_219, to: 1_000_019, last: 1800 }).to).toBe(whole.to);
    expect(wholeOf(FIXED)).toEqual({ from: 998_207, to: 1_000_007, frames: 60 });
  });

  test("the moments around the one that is shown, and no others", () => {
    // The moment that ends there, one before and two after it.
    expect(firstOf(FIXED, 998_207 + 20 * 30)).toEqual({
      from: 998_207 + 18 * 30,
      to: 998_207 + 22 * 30,
      frames: 4,
    });
    expect(firstOf(FIXED, 1)).toEqual({ from: 998_207, to: 998_327, frames: 4 });
    expect(firstOf(FIXED, undefined).to).toBe(FIXED.to);
    expect(firstOf({ from: 0, to: 20 }, undefined)).toEqual({ from: 0, to: 20, frames: 1 });
  });
});

describe("what came of it", () => {
  const asked = { from: 0, to: 300, frames: 10 };

  test("until the range is answered its other moments are awaited, and not empty", () => {
    const state = joined(made([190, 220, 250, 280, 310]), undefined, asked);
    expect(state.times).toEqual([30, 60, 90, 120, 150, 180, 190, 220, 250, 280, 310]);
    expect([...(state.awaited ?? [])]).toEqual([0, 1, 2, 3, 4, 5]);
    expect(state.utilisation[0]).toBeNaN();
    expect(state.worstErrors[0]).toBe(255);
    expect([...state.utilisation.slice(-2)]).toEqual([310, 311]);
  });

  test("moments on both sides are awaited where one within the range is shown", () => {
    const state = joined(made([150, 180]), undefined, asked);
    expect(state.times).toEqual([30, 60, 90, 120, 150, 180, 210, 240, 270, 300]);
    expect([...(state.awaited ?? [])]).toEqual([0, 1, 2, 3, 6, 7, 8, 9]);
    expect([...state.errors.slice(8, 12)]).toEqual([150, 151, 180, 181]);
  });

  test("the whole range takes its place, and what is newer stands behind", () => {
    const whole = made([240, 270, 300]);
    expect(joined(made([210, 240, 270, 300]), whole, asked)).toBe(whole);
    const state = joined(made([250, 280, 310], ["c|d", "e|f"]), whole, asked);
    expect(state.times).toEqual([240, 270, 300, 310]);
    expect(state.links).toEqual(whole.links);
    expect([...state.utilisation]).toEqual([240, 241, 270, 271, 300, 301, Number.NaN, 311]);
    expect(state.awaited?.size).toBe(0);
  });
});
