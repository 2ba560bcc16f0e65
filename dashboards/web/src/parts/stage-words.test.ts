import { describe, expect, it } from "vitest";
import type { Stages, StageTimes } from "../api/stages";
import { rankWords, stageSentences } from "./stage-words";

const STAGE: StageTimes = {
  stage: 1,
  ranks: [4, 5],
  ranks_total: 2,
  own_ns: 8e8,
  wait_ns: 1e8,
  transfer_ns: 1e8,
  bubble_share: 0.1,
  own_most_ns: 9e8,
  own_most_rank: 5,
  saved_share: 0.071,
};

const FOUND: Stages = {
  pipelines: 2,
  steps: 40,
  step_ns: 1e9,
  basis: "kernels",
  bubble_share: 0.25,
  stages: [{ ...STAGE, stage: 0, ranks: [0, 1] }, STAGE],
  pace: 1,
  unknown: [],
};

describe("stageSentences", () => {
  it("says how much is bubble and which stage sets the pace, and accuses no part", () => {
    const [bubble, pace, ...others] = stageSentences(FOUND);
    expect(bubble).toContain("2 pipelines of 2 stages");
    expect(bubble).toContain("25 %");
    expect(pace).toContain("Stage 1 sets the pace");
    expect(pace).toContain("7.1 % shorter");
    expect(pace).toContain("accuses no part");
    expect(others).toEqual([]);
  });

  it("names no stage where none sets the pace, and what is not known", () => {
    const said = stageSentences({
      ...FOUND,
      pace: null,
      basis: "outside",
      unknown: ["steps cannot be played again"],
    }).join(" ");
    expect(said).toContain("No stage sets the pace by itself.");
    expect(said).toContain("no profile shows more");
    expect(said).toContain("Not known: steps cannot be played again.");
  });

  it("gives the reason where stages are not told apart", () => {
    const unknown = ["its messages connect no stages"];
    const nothing: Stages = { ...FOUND, stages: [], bubble_share: null, pace: null, unknown };
    expect(stageSentences(nothing)).toEqual(["Not told apart: its messages connect no stages."]);
  });
});

describe("rankWords", () => {
  it("writes ranks in a row as a range", () => {
    expect(rankWords([0, 1, 2, 3, 8], 5)).toBe("0-3, 8");
    expect(rankWords([0, 2], 1202)).toBe("0, 2 and 1,200 more");
  });
});
