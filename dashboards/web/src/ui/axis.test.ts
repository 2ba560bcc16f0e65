import { expect, it } from "vitest";
import { roundTop } from "./axis";

it("an axis from nought ends at a round number that holds all values", () => {
  expect([0.0031, 0.2, 1, 7, 430, 12_000].map(roundTop)).toEqual([0.005, 0.2, 1, 10, 500, 20_000]);
});

it("an axis of nothing but nought has a top all the same", () => {
  expect([0, Number.NaN, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY].map(roundTop)).toEqual(
    [1, 1, 1, 1],
  );
});
