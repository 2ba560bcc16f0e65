import { describe, expect, it } from "vitest";
import type { AgentState, Configuration, Rollout, RolloutState } from "../api/configurations";
import { isMoving, ordersOf, readShares, readWhole, sharesLeft, shareWords } from "./rollout-words";

function rollout(
  state: RolloutState,
  stage = 0,
  shares: readonly number[] = [5, 25, 100],
): Rollout {
  return {
    version: 3,
    base: 2,
    shares,
    stage,
    state,
    failures_max: 1,
    trial_seconds: 600,
    reason: "",
    by: "",
    since: "2026-11-18T10:00:00Z",
  };
}

function configuration(
  state: RolloutState,
  hosts: Partial<Record<AgentState, number>> = {},
): Configuration {
  const version = {
    version: 3,
    sha256: "",
    is_signed: false,
    by: "ann",
    why: "",
    at: "2026-11-18T10:00:00Z",
    rollout: rollout(state),
  };
  return { version, document: "", hosts, waits_for: "", failed: [], silent: [] };
}

describe("isMoving", () => {
  it("asks again only while figures can change", () => {
    expect(isMoving(undefined)).toBe(false);
    expect(isMoving(configuration("done", { good: 40, not_yet: 2 }))).toBe(false);
    expect(isMoving(configuration("stopped", { good: 3, failed: 1 }))).toBe(false);
    expect(isMoving(configuration("back"))).toBe(false);
  });

  it("follows a roll-out, and trials that go on after a stop", () => {
    expect(isMoving(configuration("rolling"))).toBe(true);
    expect(isMoving(configuration("waiting"))).toBe(true);
    expect(isMoving(configuration("stopped", { trying: 1 }))).toBe(true);
  });
});

describe("ordersOf", () => {
  it("offers what the service would take in this state", () => {
    expect(ordersOf(undefined)).toEqual(["push"]);
    expect(ordersOf("rolling")).toEqual(["stop", "back"]);
    expect(ordersOf("waiting")).toEqual(["resume", "stop", "back"]);
    expect(ordersOf("stopped")).toEqual(["resume", "back", "push"]);
    expect(ordersOf("done")).toEqual(["back", "push"]);
    expect(ordersOf("back")).toEqual(["push"]);
  });
});

describe("shares", () => {
  it("are said with the step that is reached", () => {
    expect(shareWords(rollout("rolling", 1))).toBe(
      "25 % of the agents that take part: step 2 of 5 %, 25 %, 100 %",
    );
    expect(shareWords(rollout("rolling", 0, [100]))).toBe("100 % of the agents that take part");
  });

  it("that are left begin with the one that was stopped, or come after the one that is good", () => {
    expect(sharesLeft(rollout("stopped", 1))).toEqual([25, 100]);
    expect(sharesLeft(rollout("waiting", 1, [5, 25]))).toEqual([100]);
  });

  it("are read as a person writes them", () => {
    expect(readShares("5%, 25 % 100")).toEqual([5, 25, 100]);
    expect(readShares("2.5")).toEqual([2.5]);
    expect(readShares("")).toContain("Enter shares");
    expect(readShares("5, x")).toContain("percentage");
    expect(readShares("0, 5")).toContain("above 0");
    expect(readShares("25, 5")).toContain("above the one before");
    expect(readShares("5, 100", 25)).toContain("25 % are reached");
  });
});

describe("readWhole", () => {
  it("takes whole numbers within bounds, and nothing for an empty field", () => {
    expect(readWhole("600", 10, 86_400)).toBe(600);
    expect(readWhole("9", 10, 86_400)).toBeUndefined();
    expect(readWhole("1.5", 1, 10)).toBeUndefined();
    expect(readWhole("", 0, 10)).toBeUndefined();
  });
});
