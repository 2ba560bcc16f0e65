import { describe, expect, it, vi } from "vitest";

vi.stubGlobal("sessionStorage", { getItem: () => null });
const { answerOf } = await import("./explore");

describe("an answer", () => {
  it("may be of any type", () => {
    const vector = answerOf(
      { data: { resultType: "vector", result: [{ metric: { a: "b" }, value: [1, "+Inf"] }] } },
      0.1,
    );
    expect(vector.series).toEqual([
      { labels: { a: "b" }, times: [1], values: [Number.POSITIVE_INFINITY] },
    ]);
    const scalar = answerOf({ data: { resultType: "scalar", result: [1, "42"] } }, 0);
    expect(scalar.series[0]?.values).toEqual([42]);
    const text = answerOf({ data: { resultType: "string", result: [1, "hello"] } }, 0);
    expect(text.text).toBe("hello");
    const matrix = answerOf(
      {
        data: {
          resultType: "matrix",
          result: [
            {
              metric: {},
              values: [
                [1, "1"],
                [2, "NaN"],
              ],
            },
          ],
        },
      },
      0,
    );
    expect(matrix.series[0]?.values[1]).toBeNaN();
  });

  it("separates the notice of held-back series from other warnings", () => {
    const answer = answerOf(
      {
        warnings: ["results truncated due to limit"],
        infos: ["might not be a counter"],
        data: { resultType: "vector", result: [] },
      },
      0,
    );
    expect(answer.isCut).toBe(true);
    expect(answer.notes).toEqual(["might not be a counter"]);
  });
});
