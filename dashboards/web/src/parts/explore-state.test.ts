import { describe, expect, it } from "vitest";
import {
  asked,
  HISTORY_MAX,
  historyOf,
  momentsOf,
  placed,
  plainError,
  QUERIES_MAX,
  remembered,
  stepFor,
  written,
} from "./explore-state";

describe("the address", () => {
  it("holds every state", () => {
    const state = { queries: ["up", "rate(x[5m])"], shown: "table", only: 'A{host="a"}' } as const;
    const parameters = written(state);
    const kept = Object.fromEntries(
      Object.entries(parameters).filter(([, value]) => value !== undefined),
    ) as Record<string, string>;
    expect(kept).toEqual({
      query: "up",
      query2: "rate(x[5m])",
      shown: "table",
      only: 'A{host="a"}',
    });
    expect(asked(kept)).toEqual(state);
  });

  it("takes away what is not asked any more, and closes holes", () => {
    expect(written({ queries: ["", "b"], shown: "plot", only: undefined })).toMatchObject({
      query: "b",
      query2: undefined,
      query8: undefined,
      shown: undefined,
    });
    expect(asked({ query2: "b", query7: "c" }).queries).toEqual(["b", "c"]);
  });

  it("is bounded", () => {
    const many = Object.fromEntries(
      Array.from({ length: 20 }, (_, place) => [`query${place + 1}`, "x"]),
    );
    expect(asked({ ...many, query: "x" }).queries).toHaveLength(QUERIES_MAX);
  });
});

describe("history", () => {
  it("has the newest first, each once, and an end", () => {
    expect(remembered(["a", "b"], " b ")).toEqual(["b", "a"]);
    expect(remembered(["a"], "  ")).toEqual(["a"]);
    expect(remembered(["a"], "x".repeat(5000))).toEqual(["a"]);
    const full = Array.from({ length: HISTORY_MAX }, (_, place) => String(place));
    expect(remembered(full, "new")).toHaveLength(HISTORY_MAX);
    expect(remembered(full, "new")[0]).toBe("new");
  });

  it("reads whatever the browser kept", () => {
    expect(historyOf(null)).toEqual([]);
    expect(historyOf("{")).toEqual([]);
    expect(historyOf('{"a":1}')).toEqual([]);
    expect(historyOf('["a",3,"b"]')).toEqual(["a", "b"]);
  });
});

describe("time", () => {
  it("has round steps by the width", () => {
    expect(stepFor(1800, 1000)).toBe(5);
    expect(stepFor(60, 1000)).toBe(1);
    expect(stepFor(7 * 86_400, 1000)).toBe(1800);
    expect(stepFor(1800, 0)).toBe(30);
    expect(stepFor(365 * 86_400, 300)).toBe(3 * 86_400);
  });

  it("lies on whole steps", () => {
    expect(momentsOf(101, 161, 15)).toEqual({ from: 105, to: 150 });
    expect(momentsOf(100, 101, 15)).toEqual({ from: 105, to: 105 });
  });
});

describe("an error", () => {
  it("shows its place", () => {
    expect(placed("sum(rate(x))", { from: 9, to: 10, message: "" })).toEqual({
      where: "character 10",
      line: "sum(rate(x))",
      pointer: "         ^",
    });
    const two = placed("sum(\n  up up)", { from: 10, to: 30, message: "" });
    expect(two.where).toBe("line 2, character 6");
    expect(two.pointer).toBe("     ^^^");
    expect(placed("a", { from: 99, to: 99, message: "" }).pointer).toBe(" ^");
  });

  it("is shown without the words around it", () => {
    expect(plainError('invalid parameter "query": parse error: unclosed left parenthesis')).toBe(
      "unclosed left parenthesis",
    );
  });
});
