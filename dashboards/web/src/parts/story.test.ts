import { describe, expect, it, vi } from "vitest";
import type { Incident } from "../api/incidents";

vi.stubGlobal("location", { hash: "" });
vi.stubGlobal("addEventListener", () => {});

const { around, stretches, historyOf } = await import("./story-turns");

const NS = 1e9;
const LINK = { host: "n5", device: "mlx5_1", port: "1" };
const RANK = { job: "train", rank: 7, host: "n1", gpu: 3 };

function made(changes: Partial<Incident> = {}): Incident {
  return {
    id: "x",
    state: "closed",
    verdict: {
      cause: "straggler",
      culprit: RANK,
      since_ns: 1000 * NS,
      until_ns: 1500 * NS,
      reason: "unknown",
      confidence: 0.97,
      layer: "compute",
      summary: "",
      action: "",
      jobs: ["train"],
      accomplices: [],
      victims: [],
      evidence: [],
      ruled_out: [],
      costs: [],
      clock_error_ns: null,
    },
    first_said_ns: 1180 * NS,
    last_seen_ns: 1500 * NS,
    confirmed_ns: 1500 * NS,
    closed_ns: 1560 * NS,
    jobs: ["train"],
    symptoms: [],
    symptoms_seen: 0,
    reopened: 0,
    lasted_seconds: 500,
    first_since_ns: 1000 * NS,
    taken_for: null,
    became: null,
    work: {
      acknowledged_by: "",
      acknowledged_ns: null,
      acknowledged_note: "",
      assigned_to: "",
    },
    history: [
      { time_ns: 1180 * NS, news: "opened", cause: "lossy_link", culprit: LINK, confidence: 0.98 },
      {
        time_ns: 1300 * NS,
        news: "changed",
        cause: "straggler",
        culprit: RANK,
        confidence: 0.97,
        was_cause: "lossy_link",
        was_culprit: LINK,
      },
      { time_ns: 1400 * NS, news: "updated", cause: "straggler", culprit: RANK, confidence: 0.99 },
      { time_ns: 1560 * NS, news: "closed", cause: "straggler", culprit: RANK, confidence: 0.99 },
    ],
    ...changes,
  };
}

describe("the story", () => {
  it("says what was asked and what came of it, and the verdict stands meanwhile", () => {
    const asked = { cause: "slow_link", culprit: LINK, confidence: 0.5 };
    const incident = made({
      history: [
        { time_ns: 1180 * NS, news: "opened", ...asked },
        { time_ns: 1200 * NS, news: "asked", ...asked, note: "The service asked n5." },
        { time_ns: 1210 * NS, news: "answered", ...asked, note: "It came after 10 s." },
      ],
    });
    const entries = historyOf(incident).filter(({ title }) => /Asked|came of it/.test(title));
    expect(entries.map(({ text }) => text)).toEqual([
      "The service asked n5.",
      "It came after 10 s.",
    ]);
    expect(stretches(incident, 1560).map(({ from }) => from)).toEqual([1000, 1180]);
  });

  it("is in order of time, from the beginning to the end", () => {
    const entries = historyOf(made());
    expect(entries.map(({ time, title }) => `${time} ${title}`)).toEqual([
      "1000 The trouble began",
      "1180 First verdict, 3 min after it began",
      "1300 Explanation changed",
      "1400 More evidence",
      "1500 Last sign of it",
      "1560 Closed",
    ]);
    expect(entries[2]?.text).toBe(
      "Before: lossy link of n5 · mlx5_1 port 1. Straggler: n1 · GPU 3 · rank 7, 97 % sure.",
    );
  });

  it("of the same culprit names only the earlier cause", () => {
    const [opened] = made().history;
    const turn = {
      time_ns: 1300 * NS,
      news: "changed",
      cause: "pause_storm",
      culprit: LINK,
      confidence: 0.9,
      was_cause: "slow_link",
      was_culprit: LINK,
    };
    const entries = historyOf(made({ history: opened ? [opened, turn] : [] }));
    expect(entries[2]?.text).toContain("It was called slow link before.");
  });

  it("while it is open it has no end", () => {
    const open = made({ state: "open", closed_ns: null, history: [] });
    expect(historyOf(open).map(({ title }) => title)).toEqual(["The trouble began"]);
  });
});

describe("stretches", () => {
  it("shows which verdict stood when, and that there was none at first", () => {
    expect(stretches(made(), 9999)).toEqual([
      { from: 1000, to: 1180 },
      { from: 1180, to: 1300, cause: "lossy_link" },
      { from: 1300, to: 1560, cause: "straggler" },
    ]);
  });

  it("goes on until now while it is open", () => {
    const open = made({ state: "open", closed_ns: null, history: made().history.slice(0, 1) });
    expect(stretches(open, 2000).at(-1)).toEqual({ from: 1180, to: 2000, cause: "lossy_link" });
  });

  it("a turn before the beginning does not turn time round", () => {
    const [opened] = made().history;
    const early = made({ history: opened ? [{ ...opened, time_ns: 900 * NS }] : [] });
    expect(stretches(early, 2000)).toEqual([{ from: 1000, to: 1560, cause: "lossy_link" }]);
  });
});

it("plots show some time around it, and never the future", () => {
  expect(around(made(), 9999)).toEqual({ from: 875, to: 1625 });
  expect(around(made(), 1520).to).toBe(1520);
});
