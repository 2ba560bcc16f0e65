import { describe, expect, it, vi } from "vitest";
import type { Silence } from "../api/service";

vi.stubGlobal("location", { hash: "" });
vi.stubGlobal("addEventListener", () => {});
vi.stubGlobal("sessionStorage", { getItem: () => null });
vi.stubGlobal("localStorage", { getItem: () => null });

const { alertLabels, historyOfWork, isAbout, silenceOf } = await import("./work-words");

const LABELS = alertLabels("20261117-1", {
  cause: "slow_link",
  reason: "unknown",
  culprit: { host: "n3", device: "mlx5_0", gpu: 0 },
});

function silence(
  name: string,
  value: string,
  { isRegex = false, isEqual = true, ends = "2026-11-17T12:00:00Z" } = {},
): Silence {
  return {
    id: `${name}${value}${ends}`,
    state: "active",
    matchers: [{ name, value, isRegex, isEqual }],
    starts: "2026-11-17T10:00:00Z",
    ends,
    created_by: "ann",
    comment: "cables",
  };
}

describe("isAbout", () => {
  it("holds an incident by its id, its culprit or its cause", () => {
    expect(isAbout(silence("incident", "20261117-1"), LABELS)).toBe(true);
    expect(isAbout(silence("host", "n3"), LABELS)).toBe(true);
    expect(isAbout(silence("host", "n4"), LABELS)).toBe(false);
    expect(isAbout(silence("gpu", "0"), LABELS)).toBe(true);
    expect(isAbout(silence("cause", "slow_.*", { isRegex: true }), LABELS)).toBe(true);
    expect(isAbout(silence("host", "n", { isRegex: true }), LABELS)).toBe(false);
    expect(isAbout(silence("host", "n4", { isEqual: false }), LABELS)).toBe(true);
  });
  it("does not call silent what it cannot tell", () => {
    expect(isAbout(silence("alertname", "FabricIncident"), LABELS)).toBe(false);
    expect(isAbout(silence("cluster", "a", { isEqual: false }), LABELS)).toBe(false);
    expect(isAbout(silence("host", "(", { isRegex: true }), LABELS)).toBe(false);
    expect(isAbout(silence("host", "(", { isRegex: true, isEqual: false }), LABELS)).toBe(false);
  });
});

describe("silenceOf", () => {
  it("is the one that ends last of those in force", () => {
    const early = silence("host", "n3");
    const late = silence("host", "n3", { ends: "2026-11-17T13:00:00Z" });
    const over = { ...silence("host", "n3", { ends: "2026-11-17T14:00:00Z" }), state: "expired" };
    expect(silenceOf([early, late, over as Silence], LABELS)).toBe(late);
    expect(silenceOf([silence("host", "n4")], LABELS)).toBeUndefined();
    expect(silenceOf(undefined, LABELS)).toBeUndefined();
  });
});

describe("historyOfWork", () => {
  it("puts what all did into one order, the latest first", () => {
    const deed = { id: "1", by: "ann", to: "", note: "swapping the cable" };
    const found = historyOfWork(
      {
        deeds: [
          { ...deed, at: "2026-11-17T10:00:00Z", does: "acknowledge" },
          { ...deed, id: "2", at: "2026-11-17T10:03:00Z", does: "assign", note: "" },
        ],
        actions: [
          {
            id: "a",
            host: "n3",
            state: "refused",
            reason: "",
            by: "policy",
            rule: "bad-nic",
            at: "2026-11-17T10:01:00Z",
            until: null,
            history: [
              { at: "2026-11-17T10:01:00Z", what: "proposed", by: "policy", words: "" },
              { at: "2026-11-17T10:02:00Z", what: "refused", by: "bob", words: "no spare" },
              { at: "2026-11-17T10:02:30Z", what: "judged", by: "policy", words: "" },
            ],
          },
        ],
      },
      0,
    );
    expect(found.map(({ by, what, note }) => [by, what, note])).toEqual([
      ["ann", "assigned it to no person", ""],
      ["bob", "refused the drain of n3", "no spare"],
      ["policy", "proposed to drain n3", ""],
      ["ann", "acknowledged it", "swapping the cable"],
    ]);
  });
});
