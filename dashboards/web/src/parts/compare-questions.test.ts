import { beforeAll, describe, expect, it, vi } from "vitest";
import type { Chosen } from "./compare-questions";

let made: typeof import("./compare-questions");

beforeAll(async () => {
  // The client keeps its token there; a browser has it, Node has not.
  vi.stubGlobal("sessionStorage", { getItem: () => null });
  made = await import("./compare-questions");
});

const named = (time: number) => `at ${time}`;
const jobs: Chosen = { kind: "jobs", a: "one", b: 'tw"o', what: "step", other: undefined };

describe("two of a kind on one axis", () => {
  it("asks the same of both, and quotes names from outside", () => {
    const asked = made.questionsOf(jobs, 1000, 1600, named);
    expect(asked?.map((one) => one.query)).toEqual([
      'max(fabric_job_step_seconds{job="one"})',
      'max(fabric_job_step_seconds{job="tw\\"o"})',
    ]);
    expect(asked?.map(({ from, to, shift }) => [from, to, shift])).toEqual([
      [1000, 1600, 0],
      [1000, 1600, 0],
    ]);
  });

  it("moves another time of the same job onto the first", () => {
    const asked = made.questionsOf(
      { ...jobs, kind: "times", b: "", other: 400 },
      1000,
      1600,
      named,
    );
    expect(asked?.[1]).toMatchObject({ label: "one, at 400", from: 400, to: 1000, shift: 600 });
    const line = made.moved({ labels: {}, times: [401, 411], values: [1, 2] }, 600, 10);
    expect(line).toEqual({ times: [1000, 1010], values: [1, 2] });
  });

  it("asks nothing until both are chosen", () => {
    expect(made.questionsOf({ ...jobs, b: "" }, 0, 1, named)).toBeUndefined();
    expect(made.questionsOf({ ...jobs, kind: "times", b: "" }, 0, 1, named)).toBeUndefined();
    expect(made.questionsOf({ ...jobs, what: "nonsense" }, 0, 1, named)).toBeUndefined();
  });

  it("has a first thing to compare of every kind", () => {
    for (const whats of Object.values(made.WHATS))
      expect(Object.keys(whats).length).toBeGreaterThan(3);
  });

  it("takes the middle of what is known", () => {
    expect(made.medianOf([3, null, 1, 2])).toBe(2);
    expect(made.medianOf([null])).toBeNaN();
  });
});
