import { describe, expect, it, vi } from "vitest";

vi.stubGlobal("location", { hash: "" });
vi.stubGlobal("addEventListener", () => {});

const { againstUsual, headline, judgedStep, slowdown, sparkPath, usualOf } = await import(
  "./now-state"
);

const WELL = {
  open: 0,
  lookedAt: 996,
  isFresh: true,
  isHostKnown: true,
  hosts: 32,
  silent: undefined,
  jobs: 2,
  gpus: 256,
  ports: 512,
  quietSince: undefined,
  now: 1000,
};

describe("the headline", () => {
  it("nothing wrong names what was evaluated and when", () => {
    expect(headline(WELL)).toEqual({
      tone: "good",
      title: "Nothing is wrong",
      text: "2 running jobs, 256 GPUs, 512 ports watched. Last evaluation 4 s ago.",
    });
    expect(headline({ ...WELL, quietSince: 400, silent: 1 }).text).toBe(
      "2 running jobs, 256 GPUs, 512 ports watched. 1 host is silent. The last incident ended 10 min ago. Last evaluation 4 s ago.",
    );
  });

  it("an old evaluation is no good news", () => {
    const found = headline({ ...WELL, isFresh: false, lookedAt: 100 });
    expect([found.tone, found.title]).toEqual(["warn", "Not evaluated"]);
    expect(found.text).toContain("15 min ago");
    expect(headline({ ...WELL, isFresh: false, lookedAt: undefined }).text).toContain(
      "completed yet",
    );
  });

  it("troubles are counted, and doubted while the service does not evaluate", () => {
    expect(headline({ ...WELL, open: 1 }).title).toBe("One thing is wrong");
    expect(headline({ ...WELL, open: 3 }).tone).toBe("bad");
    expect(headline({ ...WELL, open: 3, isFresh: false, lookedAt: 100 }).text).toContain(
      "not evaluated now",
    );
  });

  it("a fresh install shows what to do", () => {
    const empty = {
      ...WELL,
      isHostKnown: false,
      isFresh: undefined,
      lookedAt: undefined,
      hosts: undefined,
      gpus: undefined,
      ports: undefined,
      jobs: 0,
    };
    expect(headline(empty).isFirstTime).toBe(true);
    expect(headline({ ...empty, isHostKnown: true }).title).toBe("No job was seen yet");
  });

  it("silence of everybody is not health", () => {
    expect(headline({ ...WELL, silent: 32 }).title).toBe("No host reports any more");
  });
});

describe("a job's step", () => {
  it("is held against what the rules recorded, else against the last hour", () => {
    expect(usualOf(undefined, 2.5, [9, 9, 9])).toBe(2.5);
    expect(usualOf(undefined, undefined, [3, 1, 2, Number.NaN])).toBe(2);
    expect(usualOf(undefined, undefined, [])).toBeUndefined();
    expect(slowdown(3, 2)).toBe(1.5);
    expect(slowdown(3, undefined)).toBeUndefined();
  });

  const cost = {
    job: "a",
    lost_seconds: 9,
    step_seconds: 3 as number | null,
    step_seconds_without: 2 as number | null,
    lost_share: 0.3,
    gpu_hours: 1,
  };

  it("is held against what a verdict says it would be, which no fault has crept into", () => {
    expect(judgedStep("a", [cost, { ...cost, step_seconds_without: 1.5 }])?.without).toBe(1.5);
    expect(judgedStep("b", [cost])).toBeUndefined();
    expect(judgedStep("a", [{ ...cost, step_seconds: null }])).toBeUndefined();
    expect(usualOf(judgedStep("a", [cost]), 3, [3, 3, 3])).toBe(2);
  });

  it("is never called usual beside an incident without a word on when", () => {
    const judged = judgedStep("a", [cost]);
    expect(againstUsual(2, 2, false, undefined)).toBe("as usual");
    expect(againstUsual(2.1, 2, false, undefined)).toBe("as usual");
    expect(againstUsual(1, 2, false, undefined)).toBe("−50 %");
    expect(againstUsual(3, 2, true, judged)).toBe("+50 %");
    expect(againstUsual(2.1, 2, true, judged)).toBe("+5 %");
    expect(againstUsual(2, 2, true, judged)).toBe("now as usual, it was 3 s");
    expect(againstUsual(2, 2, true, undefined)).toBe("now as usual");
    expect(againstUsual(5, 2, true, judged)).toBe("2.5 × as long");
    expect(againstUsual(undefined, 2, true, judged)).toBe("");
  });

  it("is drawn with gaps where nothing is known", () => {
    const range = { from: 0, to: 100, top: 4, gap: 30 };
    expect(sparkPath([0, 20, 80, 100], [2, 4, 9, Number.NaN], range)).toBe(
      "M0.0 50.0L20.0 0.0M80.0 0.0",
    );
  });
});
