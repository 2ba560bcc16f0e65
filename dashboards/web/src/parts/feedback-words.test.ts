import { describe, expect, it, vi } from "vitest";
import type { Said } from "../api/feedback";

vi.stubGlobal("location", { hash: "" });
vi.stubGlobal("addEventListener", () => {});
vi.stubGlobal("sessionStorage", { getItem: () => null });

const { aboutWords, caseWords, NO_ANSWERS, requestOf, saidWords } = await import(
  "./feedback-words"
);

const SAID: Said = {
  id: "1",
  at: "2026-11-17T10:00:00Z",
  by: "ann",
  says: "other",
  cause: "lossy_link",
  culprit: { host: "n3", device: "mlx5_0" },
  note: "",
  told: { cause: "slow_link", culprit: { host: "n5" } },
};

describe("requestOf", () => {
  it("sends what was said, and a note only where there is one", () => {
    expect(requestOf({ ...NO_ANSWERS, by: " ann " })).toEqual({ says: "right", by: "ann" });
    expect(requestOf({ ...NO_ANSWERS, says: "wrong", by: "ann", note: " no " })).toEqual({
      says: "wrong",
      by: "ann",
      note: "no",
    });
  });
  it("leaves out a cause and a culprit that do not belong to the answer", () => {
    const typed = { ...NO_ANSWERS, by: "ann", cause: "hang", host: "n1" };
    expect(requestOf(typed)).toEqual({ says: "right", by: "ann" });
  });
  it("names another cause and, if it is known, the culprit", () => {
    const other = { ...NO_ANSWERS, says: "other", by: "ann", cause: "straggler" } as const;
    expect(requestOf(other)).toEqual({ says: "other", by: "ann", cause: "straggler" });
    expect(requestOf({ ...other, host: "n1", gpu: "0" })).toEqual({
      says: "other",
      by: "ann",
      cause: "straggler",
      culprit: { host: "n1", gpu: 0 },
    });
    expect(requestOf({ ...other, rank: "12" })).toMatchObject({ culprit: { rank: 12 } });
  });
  it("says what is missing", () => {
    const other = { ...NO_ANSWERS, says: "other", by: "ann", cause: "straggler" } as const;
    expect(requestOf(NO_ANSWERS)).toBe("Enter your name.");
    expect(requestOf({ ...other, cause: "" })).toBe("Choose the cause.");
    expect(requestOf({ ...other, gpu: "one", host: "n1" })).toBe("The GPU is a number.");
    expect(requestOf({ ...other, device: "mlx5_0" })).toBe("Enter the host of the device.");
  });
});

describe("words", () => {
  it("tells what it was instead", () => {
    expect(saidWords(SAID)).toBe("it was Lossy link: n3 · mlx5_0");
    expect(saidWords({ ...SAID, culprit: {} })).toBe("it was Lossy link");
    expect(saidWords({ ...SAID, says: "wrong" })).toBe("wrong");
  });
  it("names the verdict that it was about only where that has changed", () => {
    expect(aboutWords(SAID, "slow_link", { host: "n5" })).toBe("");
    expect(aboutWords(SAID, "hang", { host: "n5" })).toBe("about Slow link: n5");
  });
  it("tells why a window is not kept", () => {
    const note = { state: "too_large", words: "9 MiB", bytes: 0, is_repeated: false } as const;
    expect(caseWords(note)).toBe("The window of this verdict is not kept: 9 MiB.");
    expect(caseWords({ ...note, state: "kept", is_repeated: true })).toContain("later versions");
    expect(caseWords({ ...note, state: "kept" })).toContain("does not give");
    expect(caseWords(null)).toContain("any more");
  });
});
