import { describe, expect, it } from "vitest";
import type { Heat } from "../api/heat";
import { recordsOf, rowsOf, scaleOf } from "./heat";
import { heatWords, isQuantity, latestWords, leftOutWords, valueWords } from "./heat-words";

/** Two ranks on two hosts; steps of 1 s. */
const made = (rows: number[][], stepsInOne = 1): Heat => ({
  quantity: "late",
  ranks: rows.map((_, rank) => ({ rank, host: `n${rank}`, gpu: "3", device: null })),
  steps: (rows[0] ?? []).map((_, step) => ({ from: step, to: step + 1 })),
  stepsInOne,
  values: Float32Array.from(rows.flat()),
});

describe("a value", () => {
  it("states whether it is late, early, or not seen", () => {
    expect(valueWords("late", 0.32)).toBe("320 ms late");
    expect(valueWords("late", -0.002)).toBe("2 ms early");
    expect(valueWords("late", 0)).toBe("on time");
    expect(valueWords("wait", Number.NaN)).toBe("not seen");
    expect(valueWords("step", 3.1)).toBe("step of 3.1 s");
  });

  it("is of a quantity that exists", () => {
    expect(isQuantity("network")).toBe(true);
    expect(isQuantity("constructor")).toBe(false);
    expect(isQuantity(undefined)).toBe(false);
  });
});

describe("who is last", () => {
  it("is named when it is no chance and costs time", () => {
    const heat = made([
      [0, 0, 0, 0],
      [0.3, 0.3, 0.3, -0.1],
    ]);
    expect(latestWords(heat, recordsOf(heat))).toBe(
      "Rank 1 on n1 (GPU 3) is last in 75 % of the steps, 300 ms late as a rule.",
    );
  });

  it("is not blamed for microseconds, or for being last by chance", () => {
    const calm = made([
      [0, 0],
      [0.001, 0.001],
    ]);
    expect(latestWords(calm, recordsOf(calm))).toContain("but by no more than 1 ms");
    const mixed = made([
      [0.5, 0, 0],
      [0, 0.5, 0],
      [0, 0, 0.5],
    ]);
    expect(latestWords(mixed, recordsOf(mixed))).toContain("No rank is last as a rule");
    expect(latestWords(made([[Number.NaN]]), [])).toBe("No rank was seen in any step.");
  });
});

describe("the map in a sentence", () => {
  it("names the largest, or states that no rank stands out", () => {
    const late = made([
      [0, 0],
      [0, 0.5],
    ]);
    expect(heatWords(late, rowsOf(late, "rank", "rank"), scaleOf(late))).toContain(
      "largest at rank 1 · n1 · GPU 3, 500 ms late",
    );
    const calm = made([[0.001, 0.002]]);
    expect(heatWords(calm, rowsOf(calm, "rank", "rank"), scaleOf(calm))).toContain(
      "no rank stands out",
    );
  });

  it("states what it leaves out, and nothing if it shows all", () => {
    expect(leftOutWords(made([[0]]), 0, 1)).toBe("");
    expect(leftOutWords(made([[0]], 4), 3, 2)).toBe(
      "each column is the worst of 4 steps; 1 of 4 ranks: those that stand out, and some of all over the job; one in 2 collectives was looked at",
    );
  });
});
