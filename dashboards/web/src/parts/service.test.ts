import { describe, expect, it, vi } from "vitest";
import type { About, Alert, Notice, Reading, RuleBook } from "../api/service";
import type { Numbers } from "./service-troubles";

vi.stubGlobal("sessionStorage", { getItem: () => null });

const { troublesOf, troublesOfAge, isLate, runbookOf, hasPack, number } = await import(
  "./service-troubles"
);
const { read, write, matchersOf } = await import("./service-matchers");
const { OVERVIEW, agentWords, charts, diskWords, legend, oddityWords, silenceOf } = await import(
  "./service-questions"
);
const { together } = await import("../api/service");

const NOW = 1_800_000_000;
const iso = (seconds: number) => new Date(seconds * 1000).toISOString();
const ABOUT: About = {
  notReady: "",
  version: "1",
  startedAt: NOW - 3600,
  clockAhead: 0,
  retention: "30d",
};
const one = (value: number, labels: Record<string, string> = {}): Reading[] => [{ labels, value }];
const WELL: Numbers = {
  ...(Object.fromEntries(Object.keys(OVERVIEW).map((name) => [name, []])) as unknown as Numbers),
  processes: one(1, { instance: "a:1" }),
  leads: one(1, { instance: "a:1" }),
  evaluations: one(59),
};
const BOOK: RuleBook = { groups: [], files: [], alerts: [] };
const alert = (labels: Record<string, string>, state: Alert["state"] = "firing"): Alert => ({
  labels: { theme: "self", severity: "critical", ...labels },
  annotations: { summary: "It is slow.", runbook_url: "http://a:1/runbooks/service-store" },
  state,
  activeAt: iso(NOW - 120),
  value: "1",
});
const troubles = (
  change: { about?: Partial<About>; numbers?: Partial<Numbers>; book?: Partial<RuleBook> },
  notices: readonly Notice[] = [],
) =>
  troublesOf(
    { ...ABOUT, ...change.about },
    { ...WELL, ...change.numbers },
    { ...BOOK, ...change.book },
    notices,
    NOW,
  );

describe("what is wrong with the service", () => {
  it("nothing, when it is well", () => {
    expect(troubles({})).toEqual([]);
  });
  it("a store that is away is broken", () => {
    const [first] = troubles({ about: { notReady: "store: no connection" } });
    expect(first).toMatchObject({ tone: "bad", runbook: "service-store" });
    expect(first?.text).toContain("no connection");
  });
  it("old data and a missing evaluation are broken, whatever else is well", () => {
    const age = (age_seconds: number | null) => ({ age_seconds, bound_seconds: 60 });
    const of = (data: number | null, evaluation: number | null) =>
      troublesOfAge({ data: age(data), evaluation: age(evaluation) }, 10);
    expect(of(40, 40)).toEqual([]);
    expect(of(null, null)).toEqual([]);
    const found = of(1190, 1170);
    expect(found.map(({ tone }) => tone)).toEqual(["bad", "bad"]);
    expect(found[0]?.text).toContain("The newest data is 20 min old: no agent reports");
    expect(found[1]?.text).toContain("Nothing was evaluated for 19 min");
  });
  it("late data are a reason for late verdicts", () => {
    const late = troubles({
      numbers: {
        behind: one(32),
        outstanding: [{ labels: { state: "outstanding" }, value: 7 }],
        notJudged: [{ labels: { job: "llama", missing: "records" }, value: 0.4 }],
      },
    });
    expect(late.map(({ text }) => text)).toEqual([
      "Data come late: faults are looked for up to 32 s ago, and 7 hosts outstanding",
      "Job llama is not judged: 40 % of its records are missing",
    ]);
    expect(troubles({ numbers: { behind: one(5) } })).toEqual([]);
  });
  it("no evaluation is reported only once there was time for one", () => {
    expect(troubles({ numbers: { evaluations: one(0) } })[0]?.text).toContain(
      "does not look for faults",
    );
    const young = { startedAt: NOW - 60 };
    expect(troubles({ about: young, numbers: { evaluations: [] } })).toEqual([]);
    expect(troubles({ numbers: { evaluations: [], processes: [] } })).toEqual([]);
  });
  it("two leaders are named", () => {
    const leads = [...one(1, { instance: "a:1" }), ...one(1, { instance: "b:1" })];
    expect(troubles({ numbers: { leads } })[0]?.text).toContain("a:1 and b:1 both evaluate");
  });
  it("clocks that differ, and by how much", () => {
    expect(troubles({ about: { clockAhead: -90 } })[0]?.text).toContain("90 s behind");
  });
  it("the pack's alerts about itself, the worst first; not the watchdog, nor others", () => {
    const found = troubles({
      book: {
        alerts: [
          alert({ alertname: "A", severity: "warning" }),
          alert({ alertname: "B" }),
          alert({ alertname: "FabricWatchdog", severity: "none" }),
          alert({ alertname: "C", theme: "gpus" }),
          alert({ alertname: "D" }, "pending"),
        ],
      },
    });
    expect(found.map(({ tone }) => tone)).toEqual(["bad", "warn", "warn"]);
    expect(found[0]).toMatchObject({ text: "It is slow. For 2 min.", runbook: "service-store" });
  });
  it("rules that fail, files that are refused, groups that are late", () => {
    const rule = {
      name: "r",
      type: "recording",
      query: "x",
      health: "err",
      lastError: "many-to-many",
      evaluationTime: 0,
      lastEvaluation: iso(NOW),
    } as const;
    const group = (last: number) => ({
      name: "g",
      file: "f",
      interval: 30,
      evaluationTime: 1,
      lastEvaluation: iso(last),
      rules: [rule],
    });
    const file = {
      name: "bad.yaml",
      state: "refused",
      error: "line 4",
      loaded_since: null,
      groups: 0,
      rules: 0,
    } as const;
    const texts = troubles({ book: { groups: [group(NOW - 200)], files: [file] } }).map(
      ({ text }) => text,
    );
    expect(texts).toHaveLength(3);
    expect(texts.join()).toMatch(/r first: many-to-many.*bad\.yaml is refused: line 4.*late, g/);
    expect(isLate(group(NOW - 60), NOW)).toBe(false);
    expect(isLate({ interval: 30, lastEvaluation: "0001-01-01T00:00:00Z" }, NOW)).toBe(false);
  });
  it("states once, with detail, what an alert states too", () => {
    const notice = {
      receiver: "oncall",
      state: "waiting",
      attempts: 3,
      planned: iso(NOW - 600),
      detail: "ConnectError",
    } as Notice;
    const book = { alerts: [alert({ alertname: "FabricNoticesWaiting" })] };
    const found = troubles({ book }, [notice, { ...notice, attempts: 0 }]);
    expect(found.map(({ text }) => text)).toEqual([
      "oncall takes no notices: 1 wait, the oldest for 10 min. ConnectError",
    ]);
    expect(troubles({ book })).toHaveLength(1);
  });
  it("knows runbooks by name only, never by address", () => {
    expect(runbookOf({ runbook_url: "javascript:alert(1)//runbooks/x" })).toBe("x");
    expect(runbookOf({ runbook_url: "http://evil/runbooks/../../x" })).toBe("");
    expect(runbookOf({})).toBe("");
  });
  it("knows whether the pack is there", () => {
    const file = { name: "fabricscope/self.yaml", state: "loaded" } as RuleBook["files"][number];
    expect(hasPack({ ...BOOK, files: [file] })).toBe(true);
    expect(hasPack(BOOK)).toBe(false);
  });
  it("no answer and NaN are no number", () => {
    expect(number([])).toBeUndefined();
    expect(number(one(Number.NaN))).toBeUndefined();
    expect(number(one(0))).toBe(0);
  });
});

describe("matchers of a silence", () => {
  it("are read as Prometheus writes them, and written back", () => {
    const text = 'host="node1", gpu=~"[0-3]", job!="a,b", x!~"y|z"';
    const found = read(`{${text}}`);
    expect(typeof found === "string" ? found : found.map(write).join(", ")).toBe(text);
  });
  it("take bare words, quotes inside, and backslashes that are not doubled", () => {
    expect(read("host=node1")).toEqual([
      { name: "host", value: "node1", isRegex: false, isEqual: true },
    ]);
    expect(read('a="say \\"hi\\""')).toMatchObject([{ value: 'say "hi"' }]);
    expect(read('a=~"node\\d+"')).toMatchObject([{ value: "node\\d+", isRegex: true }]);
  });
  it("name what cannot be read", () => {
    expect(read("")).toContain("at least one label");
    expect(read('host="open')).toContain('Cannot read host="open');
    expect(read("host")).toContain("Cannot read host");
    expect(read('a="b" c="d"')).toContain("Cannot read");
  });
  it("of an alert leave out what only describes its rule", () => {
    const labels = { alertname: "A", host: "n", severity: "critical", theme: "self" };
    expect(matchersOf(labels).map(write)).toEqual(['alertname="A"', 'host="n"']);
  });
});

describe("questions", () => {
  it("are distinguished by their names when asked as one", () => {
    expect(together({ a: "x", b: "sum(y)" })).toBe(
      'label_replace(x, "what", "a", "", "")\nor label_replace(sum(y), "what", "b", "", "")',
    );
  });
  it("have legends of their word and labels", () => {
    expect(legend("samples", { what: "0", protocol: "native" })).toBe("samples native");
    expect(legend("", { what: "0" })).toBe("all");
  });
  it("ask over the window that fits the range", () => {
    expect(charts("90s").every(({ curves }) => Object.keys(curves).length)).toBe(true);
    expect(charts("90s")[0]?.curves.samples).toContain("[90s]");
  });
  it("describe what was refused or left out, with the last example", () => {
    const odd = {
      road: "window",
      reason: "no port",
      sender: "",
      count: 2,
      examples: ["a{}", "b{}"],
      last_at: iso(NOW - 60),
    };
    expect(oddityWords(odd, NOW)).toBe("2 times, 60 s ago: b{}");
    expect(oddityWords({ ...odd, sender: "rack-7", examples: [] }, NOW)).toBe(
      "2 times of rack-7, 60 s ago",
    );
  });

  it("of a chart say why it is empty, also where its series have no number", () => {
    const all = charts("60s");
    const chart = (title: string) => all.find((each) => each.title === title) ?? all[0];
    const said = (title: string, ...values: number[][]) => {
      const found = chart(title);
      return (
        found &&
        silenceOf(
          found,
          values.map((each) => ({ values: each })),
        )
      );
    };
    expect(said("Time of rules", [0.1])).toBe("");
    expect(said("Time of rules", [Number.NaN, Number.NaN])).toContain("No rule was evaluated");
    expect(said("Time of rules")).toContain("two readings");
    expect(said("Refused")).toBe("Nothing was refused.");
    expect(said("Memory")).toBe("Nothing is known of that time");
    expect(said("Time of an insert", [Number.NaN])).toContain("Nothing of the kind");
  });

  it("foretell a full disk only once its trend is old enough", () => {
    const hour = 3600;
    expect(diskWords(false, hour)).toBe("too young to tell when it is full: that takes 2 h");
    expect(diskWords(true, 9 * hour)).toBe("full in 9 h if it goes on like this");
    expect(diskWords(true, undefined)).toBe("is not full within a month");
    expect(diskWords(true, 24 * 40 * hour)).toBe("is not full within a month");
    expect(OVERVIEW.diskLasts).toContain(OVERVIEW.diskKnown.slice("min(".length, -1));
  });
  it("describe what is wrong with agents", () => {
    expect(agentWords("source", 90, { source: "nvml" })).toBe("cannot read nvml, for 90 s");
    expect(agentWords("rejected", 1, { status: "422" })).toBe("1 batch rejected (HTTP 422)");
  });
});
