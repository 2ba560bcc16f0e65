import { describe, expect, it, vi } from "vitest";

vi.stubGlobal("localStorage", { getItem: () => null });
const { markOf } = await import("./fresh-words");

function told(data: number | null, evaluation: number | null, passed = 0) {
  return markOf({
    connection: "live",
    quiet: 1,
    passed,
    freshness: {
      data: { age_seconds: data, bound_seconds: 60 },
      evaluation: { age_seconds: evaluation, bound_seconds: 60 },
    },
  });
}

describe("the word at the top right", () => {
  it("is live only with new data and a new evaluation", () => {
    expect(told(3, 2)).toEqual({
      look: "live",
      text: "Live",
      title: "Live. Newest data 3 s ago, last evaluation 2 s ago",
    });
  });

  it("names what is old, and how old", () => {
    expect(told(1200, 2)).toMatchObject({ look: "late", text: "Data 20 min old" });
    expect(told(3, 65)).toMatchObject({ look: "late", text: "Not evaluated for 65 s" });
    expect(told(1200, 180).text).toBe("Data 20 min old, not evaluated for 3 min");
    expect(told(3, null).text).toBe("Not evaluated yet");
    expect(told(null, null)).toMatchObject({ look: "late", text: "No data yet" });
  });

  it("grows old by itself when the service is no longer heard", () => {
    expect(told(3, 2, 100).text).toBe("Data 1 min 43 s old, not evaluated for 1 min 42 s");
  });

  it("says first that there is no connection", () => {
    const mark = markOf({ connection: "lost", quiet: 12, freshness: undefined, passed: 0 });
    expect(mark).toEqual({
      look: "lost",
      text: "No connection",
      title: "No connection, last heard 12 s ago",
    });
  });
});
