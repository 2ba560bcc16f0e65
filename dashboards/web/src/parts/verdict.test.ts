import { describe, expect, it, vi } from "vitest";
import type { Incident } from "../api/incidents";

// Views' addresses are read from the window, which tests do not have.
vi.stubGlobal("location", { hash: "" });
vi.stubGlobal("addEventListener", () => {});

const words = await import("./verdict-words");
const cost = await import("./verdict-cost");
const { wayToFabric } = await import("./fabric-way");
const { causeTable } = await import("./cause-table");

const COST = {
  job: "train",
  lost_seconds: 1800,
  step_seconds: 1.94,
  step_seconds_without: 1.21,
  lost_share: 0.376,
  gpu_hours: 128,
};

describe("names of a culprit", () => {
  it("each leads to the view that shows it", () => {
    const names = words.namesOf(
      { host: "node4", device: "mlx5_0", port: "1", switch: "leaf0", switch_port: "Ethernet0" },
      { from: 10, to: 20 },
    );
    expect(names.map(({ kind, text }) => `${kind} ${text}`)).toEqual([
      "Host node4",
      "NIC mlx5_0 port 1",
      "Switch port leaf0 Ethernet0",
    ]);
    expect(names[1]?.href).toBe("#/fabric?from=10&to=20&focus=node4%2Fmlx5_0%2F1");
    expect(names[2]?.href).toContain("focus=leaf0%2FEthernet0");
  });

  it("rank 0 and GPU 0 are names too", () => {
    const names = words.namesOf({ job: "a/b", rank: 0, host: "n", gpu: 0 });
    expect(names.map(({ kind }) => kind)).toEqual(["Host", "GPU", "Rank", "Job"]);
    expect(names[2]?.href).toBe("#/job/a%2Fb?rank=0");
  });

  it("an empty culprit has none", () => {
    expect(words.namesOf({})).toEqual([]);
    expect(words.focus({}).focus).toBeUndefined();
  });
});

describe("how long it lasted", () => {
  it("is said so that it agrees with when it began", () => {
    expect(words.lastedWords(170, 180, true)).toBe("lasts 2 min 50 s");
    expect(words.lastedWords(75, 75, false)).toBe("lasted 75 s");
    // Seen for 30 s, four and a half minutes ago, and still open.
    expect(words.lastedWords(30, 270, true)).toBe("30 s in all so far");
    // A second stretch of a minute, after one of nine.
    expect(words.lastedWords(600, 60, true)).toBe("10 min in all so far");
    expect(words.lastedWords(600, 60, false)).toBe("10 min in all");
  });
});

describe("an open incident", () => {
  const seen = (second: number) => ({ state: "open", last_seen_ns: second * 1e9 });

  it("is quiet once it was not seen for a minute", () => {
    expect(words.quietSince(seen(100), 150)).toBeUndefined();
    expect(words.quietSince(seen(100), 400)).toBe(100);
    expect(words.quietSince({ ...seen(100), state: "closed" }, 400)).toBeUndefined();
  });

  it("that is quiet leads to the fabric as it was while it was seen", () => {
    const verdict = {
      cause: "pause_storm",
      culprit: { host: "a" },
      since_ns: 100e9,
      until_ns: null,
    };
    const at = (now: number) =>
      wayToFabric({ ...seen(200), id: "one", verdict } as unknown as Incident, now)?.at;
    expect(at(230)).toBeUndefined();
    expect(at(400)).toBe("150");
  });
});

describe("words", () => {
  it("a cause that the service's table lacks is spelled as it is", () => {
    expect(words.causeOf("cosmic_rays").title).toBe("Cosmic rays");
    expect(words.runbookOf("cosmic_rays", "unknown")).toBe("/runbooks/incident");
    expect(words.ruledOutOf("cosmic_rays")).toBe("Cosmic rays");
    expect([words.reasonOf("unknown"), words.reasonOf("sun_spots")]).toEqual(["", "Sun spots"]);
  });

  it("words, runbooks and colours are the service's", () => {
    const late = {
      name: "straggler",
      title: "Late rank",
      meaning: "It comes late.",
      family: "rank",
      runbook: "late-rank",
      runbooks: { pcie: "gpu-pcie" },
      drawn_by: "",
      colour: "s2",
    };
    causeTable.value = {
      causes: [late],
      reasons: [
        { name: "gpu_throttled", title: "GPU throttled", runbook: "gpu-throttle" },
        { name: "nic", title: "NIC", runbook: "" },
      ],
    };
    expect(words.causeOf("straggler")).toEqual(late);
    expect(words.ruledOutOf("straggler")).toBe("Late rank");
    expect(words.ruledOutOf("gpu_throttled")).toBe("GPU throttled");
    expect(words.runbookOf("straggler", "gpu_throttled")).toBe("/runbooks/gpu-throttle");
    expect(words.runbookOf("straggler", "pcie")).toBe("/runbooks/gpu-pcie");
    expect(words.runbookOf("straggler", "nic")).toBe("/runbooks/late-rank");
    causeTable.value = { causes: [], reasons: [] };
  });

  it("states how sure as the service's own sentences do", () => {
    expect([0.9, 0.7, 0.5, 0.49].map(words.sureness)).toEqual([
      "almost certain",
      "likely",
      "more likely than not",
      "a suspicion",
    ]);
  });

  it.each([
    [0.0551, "seconds", "55.1 ms"],
    [0.56, "ratio", "56 %"],
    [1.44e9, "hertz", "1.44 GHz"],
    [24.5e9, "bytes per second", "24.5 GB/s"],
    [8935, "frames per second", "8.94 k frames/s"],
    [32, "bits", "clock held down: heat"],
    [84, "celsius", "84 °C"],
    [3, "changes", "3 changes"],
    [Number.NaN, "ratio", "–"],
  ])("%d %s is %s", (value, unit, expected) => {
    expect(words.quantity(value, unit)).toBe(expected);
  });

  it("an axis has room for the number only", () => {
    expect(words.shortly(10_000, "frames per second")).toBe("10 k/s");
    expect(words.shortly(12_000, "errors")).toBe("12 k");
    expect(words.shortly(1.44e9, "hertz")).toBe("1.44 GHz");
  });

  it("finds the commands between backticks", () => {
    const text = "Run `a -b` and `c`: look.";
    expect(words.commandsOf(text)).toBe("a -b\nc");
    expect(words.pieces(text).map(({ text: piece }) => piece)).toEqual([
      "Run ",
      "a -b",
      " and ",
      "c",
      ": look.",
    ]);
    expect(words.pieces("a lone ` stays")).toEqual([{ text: "a lone ` stays", isCommand: false }]);
  });

  it("distinguishes the subject of an evidence from the culprit", () => {
    const culprit = { host: "n4", switch: "leaf1", switch_port: "e0" };
    expect(words.isAbout({ host: "n4", device: "eth0" }, culprit)).toBe(true);
    expect(words.isAbout({ host: "leaf1", port: "e0" }, culprit)).toBe(true);
    expect(words.isAbout({ host: "leaf1", port: "e9" }, culprit)).toBe(false);
    expect(words.isAbout({ job: "train" }, culprit)).toBe(true);
    expect(words.subjectOf({ host: "leaf1", device: "leaf1", port: "e9" })).toBe("leaf1 e9");
    expect(words.subjectOf({ host: "n4", device: "mlx5_0", port: "1" })).toBe("n4 mlx5_0 port 1");
  });
});

describe("cost", () => {
  it("a further hour costs the job's GPUs times the share that is lost", () => {
    // 128 GPU-hours in half an hour: 256 GPUs.
    expect(cost.perHour([COST])).toBeCloseTo(256 * 0.376);
    expect(cost.perHour([{ ...COST, lost_seconds: 0 }])).toBe(0);
  });

  it("states what a step would take", () => {
    expect(cost.costSentence(COST, false)).toBe(
      "Without it a step of train would take 1.21 s instead of 1.94 s.",
    );
    // Its usual step was slow by another trouble.
    expect(cost.costSentence({ ...COST, is_at_least: true }, false)).toBe(
      "Without it a step of train would take 1.21 s or less instead of 1.94 s.",
    );
    expect(cost.costLine([{ ...COST, is_at_least: true }])[0]).toMatch(/^at least /);
    expect(cost.costLine([COST])[0]).not.toContain("at least");
    const hung = { ...COST, step_seconds: null, step_seconds_without: null, lost_share: 1 };
    expect(cost.costSentence(hung, false)).toBe("train does not move at all.");
    expect(cost.costSentence({ ...hung, lost_share: 0.4 }, true)).toBe(
      "train lost 40 % of its time.",
    );
  });

  it("reads prices as people write them", () => {
    expect(cost.parsePrice("2.5")).toEqual({ amount: 2.5, before: "", after: "" });
    expect(cost.parsePrice("$2.50")).toEqual({ amount: 2.5, before: "$", after: "" });
    expect(cost.parsePrice(" 2,10 € ")).toEqual({ amount: 2.1, before: "", after: "€" });
    for (const wrong of [null, "", "free", "-3", "0", "1e400", "2.5.1"])
      expect(cost.parsePrice(wrong)).toBeUndefined();
  });

  it("speaks of money only with a price", () => {
    expect(cost.costLine([COST])).toEqual(["38 % of the time", "128 GPU-hours"]);
    expect(cost.costLine([COST], { amount: 2, before: "$", after: "" })[2]).toBe("$256");
    expect(cost.costLine([])).toEqual([]);
    // 0 % of the time would contradict the hours beside it.
    const now = { ...COST, lost_share: 0, step_seconds: null, step_seconds_without: null };
    expect(cost.costLine([now])).toEqual(["128 GPU-hours"]);
    expect(cost.costSentence({ ...now, lost_seconds: 16.8 }, false)).toBe("train has lost 16.8 s.");
    expect(cost.hoursNumber(0.003)).toBe("< 0.01");
  });

  it("what costs little may wait", () => {
    expect(cost.isMinor([{ ...COST, lost_share: 0.01 }])).toBe(true);
    expect(cost.isMinor([COST])).toBe(false);
    expect(cost.isMinor([])).toBe(false);
  });
});
