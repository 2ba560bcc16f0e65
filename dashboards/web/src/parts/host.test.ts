import { describe, expect, it, vi } from "vitest";
import type { HealthTurn, HostHealth } from "../api/hosts";
import type { IncidentShort } from "../api/incidents";
import type { Topology } from "../api/topology";

// Addresses and tokens are read from the window, which tests do not have.
vi.stubGlobal("location", { hash: "" });
vi.stubGlobal("addEventListener", () => {});
vi.stubGlobal("sessionStorage", { getItem: () => null });

const cells = await import("./host-cells");
const words = await import("./host-words");
const { causeTable } = await import("./cause-table");
const past = await import("./host-history");
const questions = await import("./host-questions");

const NOW = 1_800_000_000;
const host = (name: string, more: Partial<HostHealth> = {}): HostHealth => ({
  host: name,
  state: "healthy",
  risk: 0,
  lemon: 0,
  ...more,
});
const SILENT = host("b", {
  state: "suspect",
  risk: 0.5,
  reasons: ["silent since 2027-01-15T07:00:00Z"],
});
const BROKEN = host("c", {
  state: "degraded",
  risk: 0.9,
  lemon: 0.4,
  reasons: ["link_flap (cable) of link mlx5_0/1, open, 20261115-091840-puput-fodam"],
});

describe("reasons in words", () => {
  it("names cause, what lies behind it, the part, and leads to the incident", () => {
    const cable = { name: "cable", title: "cable or transceiver", runbook: "" };
    causeTable.value = { causes: [], reasons: [cable] };
    expect(words.reasonWords(BROKEN.reasons?.[0] ?? "", NOW)).toEqual({
      text: "Link flap (cable or transceiver), link mlx5_0/1, open",
      incident: "20261115-091840-puput-fodam",
      isOpen: true,
    });
  });
  it("states how long a host is silent", () => {
    expect(words.reasonWords("silent since 2027-01-15T07:00:00Z", NOW).text).toBe("silent for 1 h");
  });
  it("distinguishes a finding from an incident", () => {
    const found = words.reasonWords("lossy_link of gpu 3, found", NOW);
    expect(found).toEqual({
      text: "Lossy link, GPU 3, seen, no incident",
      incident: "",
      isOpen: true,
    });
  });
  it("shows what it cannot read as it is", () => {
    const text = "draining by ada: cables, of link x, open";
    expect(words.reasonWords(text, NOW)).toEqual({ text, incident: "", isOpen: true });
  });
});

describe("the fleet", () => {
  const fleet = [host("a"), SILENT, BROKEN];
  it("distinguishes silent hosts from suspect ones", () => {
    expect(fleet.map(words.lookOf)).toEqual(["healthy", "silent", "degraded"]);
  });
  it("states which hosts can take the next job", () => {
    expect(words.fleetWords(fleet.map(words.lookOf))).toBe("1 of 3 hosts can take the next job");
    expect(words.fleetWords(["healthy", "healthy"])).toBe("All 2 hosts can take the next job");
    expect(words.fleetWords([])).toBe("No host is known");
  });
  it("is sorted by what needs a person first, and keeps the order of equals", () => {
    const order = (sort: "worst" | "name" | "seen" | "lemon") =>
      words.sorted(fleet, sort, (name) => (name === "b" ? 5 : undefined)).map((one) => one.host);
    expect(order("worst")).toEqual(["c", "b", "a"]);
    expect(order("seen")).toEqual(["b", "a", "c"]);
    expect(order("lemon")).toEqual(["c", "b", "a"]);
    const numbers = [host("n10"), host("n9")];
    expect(words.sorted(numbers, "name", () => undefined).map((one) => one.host)).toEqual([
      "n9",
      "n10",
    ]);
  });
  it("is chosen by state, rail, name and reason", () => {
    const chosen = (wanted: Partial<Parameters<typeof words.isWanted>[1]>) =>
      fleet
        .filter((one) => words.isWanted(one, { looks: new Set(), search: "", ...wanted }))
        .map((one) => one.host);
    expect(chosen({ looks: words.looksOf("degraded,silent,nonsense") })).toEqual(["b", "c"]);
    expect(chosen({ search: "FLAP" })).toEqual(["c"]);
    expect(chosen({ among: new Set(["a"]) })).toEqual(["a"]);
    expect(chosen({})).toEqual(["a", "b", "c"]);
  });
  it("has a text for screen readers", () => {
    expect(words.fleetLabel({ stale: [], items: fleet })).toContain(
      "3 hosts: 1 degraded, 1 silent, 1 healthy; the worst is c, degraded, risk 0.90",
    );
  });
  it("takes unknown words of an address for the usual", () => {
    expect(words.sortOf("constructor")).toBe("worst");
    expect(words.sortOf("lemon")).toBe("lemon");
  });
});

describe("cells", () => {
  const groups = [
    { name: "pod 0", hosts: { length: 40 } },
    { name: "pod 1", hosts: { length: 25 } },
    { name: "pod 2", hosts: { length: 3 } },
  ];
  const plan = cells.planCells(groups, 500, 400);
  it("no two share a place, and each is found where it lies", () => {
    const places = new Set<string>();
    for (let index = 0; index < 68; index++) {
      const { x, y } = cells.cellAt(plan, index);
      places.add(`${x} ${y}`);
      expect(x + plan.pitch).toBeLessThanOrEqual(500);
      expect(cells.hostAt(plan, x + 1, y + 1)).toBe(index);
      expect(cells.hostAt(plan, x + plan.pitch - 1, y + plan.pitch - 1)).toBe(index);
    }
    expect(places.size).toBe(68);
    expect(cells.hostAt(plan, -3, 5)).toBeUndefined();
    expect(cells.hostAt(plan, 5, plan.height + 5)).toBeUndefined();
  });
  it("are as large as the height allows", () => {
    expect(plan.height).toBeLessThanOrEqual(400);
    const many = cells.planCells([{ name: "", hosts: { length: 10_000 } }], 1300, 600);
    expect(many.pitch).toBeLessThan(plan.pitch);
    expect(many.height).toBeLessThanOrEqual(600);
    const few = cells.planCells([{ name: "", hosts: { length: 3 } }], 1300, 600);
    expect(few.pitch).toBeGreaterThan(plan.pitch);
  });
  it("arrow keys lead to neighbours and stop at the ends", () => {
    expect(cells.step(plan, 0, "ArrowRight")).toBe(1);
    expect(cells.step(plan, 0, "ArrowLeft")).toBe(0);
    expect(cells.step(plan, 67, "ArrowRight")).toBe(67);
    const below = cells.step(plan, 0, "ArrowDown");
    expect(cells.cellAt(plan, below)).toEqual({ x: 0, y: cells.cellAt(plan, 0).y + plan.pitch });
    expect(cells.step(plan, below, "ArrowUp")).toBe(0);
  });
  it("of no host need no room", () => {
    expect(cells.planCells([], 500, 400)).toMatchObject({ height: 0, blocks: [] });
    expect(cells.planCells(groups, 0, 400).blocks).toHaveLength(3);
  });
});

describe("groups", () => {
  const node = (name: string, kind: "host" | "switch", pod: number | null = null) => ({
    name,
    kind,
    tier: kind === "switch" ? 0 : null,
    rail: null,
    pod,
    attributes: {},
  });
  const port = (id: string, rail: number | null) => ({
    id,
    host: id.split("/")[0] ?? "",
    device: "",
    port: "",
    state: null,
    rate_bits_per_second: null,
    rail,
    netdev: null,
    link: null,
  });
  const link = (a: string, b: string) => ({ id: `${a}|${b}`, a, b }) as Topology["links"][number];
  const topology: Topology = {
    at: "",
    nodes: [
      node("n2", "host"),
      node("n10", "host"),
      node("lone", "host"),
      node("leaf-a", "switch", 1),
      node("leaf-b", "switch", 1),
    ],
    ports: [
      port("n2/x/1", 0),
      port("n2/y/1", 1),
      port("n10/x/1", 0),
      port("leaf-a/leaf-a/1", null),
      port("leaf-b/leaf-b/1", null),
    ],
    links: [
      link("leaf-a/leaf-a/1", "n2/x/1"),
      link("leaf-b/leaf-b/1", "n2/y/1"),
      link("leaf-a/leaf-a/1", "n10/x/1"),
    ],
    conflicts: [],
  };
  it("are pods where a host hangs on several leaves of one, else the leaf, else elsewhere", () => {
    expect(cells.groupsOf(["n10", "n2", "lone"], () => "", topology)).toEqual([
      { name: "leaf-a", hosts: ["n10"] },
      { name: "pod 1", hosts: ["n2"] },
      { name: "elsewhere", hosts: ["lone"] },
    ]);
  });
  it("are clusters where no cable is known, numbers in order", () => {
    const of = (name: string) => (name === "z" ? "west" : "east");
    expect(cells.groupsOf(["n10", "n2", "z"], of, undefined)).toEqual([
      { name: "east", hosts: ["n2", "n10"] },
      { name: "west", hosts: ["z"] },
    ]);
  });
  it("know the rails", () => {
    expect(cells.railsOf(topology)).toEqual([0, 1]);
    expect(cells.railsOf(undefined)).toEqual([]);
  });
});

describe("the past", () => {
  const turn = (time: number, was: HostHealth["state"], state: HostHealth["state"], why = "") =>
    ({ kind: "host", name: "a", time_ns: time * 1e9, state, was, risk: 0, why }) as HealthTurn;
  it("is cut to the time that is looked at, whatever the order of turns", () => {
    const turns = [
      turn(200, "degraded", "suspect", "silent since 1970-01-01T00:02:30Z"),
      turn(100, "healthy", "degraded", "hang"),
    ];
    expect(past.stretchesOf(turns, "suspect", 50, 250)).toEqual([
      { look: "healthy", from: 50, to: 100, why: "", isPresumed: true },
      { look: "degraded", from: 100, to: 200, why: "hang", isPresumed: false },
      {
        look: "silent",
        from: 200,
        to: 250,
        why: "silent since 1970-01-01T00:02:30Z",
        isPresumed: false,
      },
    ]);
    expect(past.stretchesOf(turns, "suspect", 120, 130)).toEqual([
      { look: "degraded", from: 120, to: 130, why: "hang", isPresumed: false },
    ]);
  });
  it("without turns is the present", () => {
    expect(past.stretchesOf([], "out", 0, 10)).toMatchObject([
      { look: "out", from: 0, to: 10, isPresumed: true },
    ]);
  });
  it("has a line for each part that turned", () => {
    const gpu = { ...turn(1, "healthy", "suspect"), kind: "gpu", name: "a/2" } as HealthTurn;
    expect([...past.partsOf([gpu, turn(2, "healthy", "out")]).keys()]).toEqual(["GPU 2"]);
  });
  it("lays incidents on lanes where they do not overlap", () => {
    const incident = (id: string, since: number, until: number | null) =>
      ({
        id,
        state: until === null ? "open" : "closed",
        since_ns: since * 1e9,
        until_ns: until === null ? null : until * 1e9,
        last_seen_ns: since * 1e9,
      }) as IncidentShort;
    const bars = past.barsOf(
      [
        incident("late", 60, null),
        incident("a", 10, 50),
        incident("b", 40, 70),
        incident("x", 1, 2),
      ],
      5,
      100,
    );
    expect(bars.map(({ incident: { id }, from, to, lane }) => [id, from, to, lane])).toEqual([
      ["a", 10, 50, 0],
      ["b", 40, 70, 1],
      ["late", 60, 100, 0],
    ]);
  });
  it("writes ranks as spans", () => {
    expect(past.spans([7, 4, 5, 6, 9, 4])).toBe("4-7, 9");
    expect(past.spans([])).toBe("");
  });
});

describe("readings", () => {
  it("are found by question and place", () => {
    const curves = new questions.Curves([
      { labels: { what: "sent", device: "mlx5_0", port: "1" }, times: [1, 2], values: [5, 6] },
      { labels: { what: "busy", gpu: "3" }, times: [1], values: [0.5] },
    ]);
    expect(curves.last("sent", "mlx5_0", "1")).toBe(6);
    expect(curves.last("busy", "3")).toBe(0.5);
    expect(curves.last("sent", "mlx5_0")).toBeUndefined();
    expect(curves.of("busy", "4").values).toEqual([]);
  });
  it("sum up where any is known", () => {
    const sum = questions.summed([
      { times: [1, 2], values: [1, Number.NaN] },
      { times: [2, 3], values: [10, 20] },
    ]);
    expect(sum).toEqual({ times: [1, 2, 3], values: [1, 10, 20] });
    expect(questions.mean({ times: [], values: [] })).toBeNaN();
  });
  it("show what holds a clock down, and nothing of rest and wishes", () => {
    expect(questions.clockWords(0x1 | 0x2)).toBe("");
    expect(questions.clockWords(0x40 | 0x80)).toBe("heat (hardware), power brake");
    expect(questions.clockWords(undefined)).toBe("");
  });
  it("quote a host's name, which comes from outside", () => {
    expect(questions.agentQuestions('a"} or vector(1) #').delivers).toContain(
      '{host="a\\"} or vector(1) #"}',
    );
  });
});

describe("jobs on hosts", () => {
  it("asks for the first ones, by names that cannot break the question, and keeps which ones it asked for", async () => {
    const asked: string[] = [];
    vi.stubGlobal("fetch", async (url: string) => {
      asked.push(new URL(url, "http://x").searchParams.get("query") ?? "");
      const result = [
        { metric: { host: "a.b", job: "train" }, value: [1, "8"] },
        { metric: { host: "stranger", job: "train" }, value: [1, "8"] },
      ];
      return new Response(
        JSON.stringify({ status: "success", data: { resultType: "vector", result } }),
      );
    });
    const { askJobsOn } = await import("../api/hosts");
    const found = await askJobsOn(["a.b", 'c"|.*'], NOW, new AbortController().signal);
    expect(asked[0]).toContain('{host=~"a\\\\.b|c\\"\\\\|\\\\.\\\\*", job!=""}');
    // Of collectives, the ranks of one communicator: a rank has another number in each.
    expect(asked[0]).toContain("count by (host, job, communicator)");
    expect(asked[0]).not.toContain("group by (host, job, rank) (fabric_collective");
    expect([...found]).toEqual([
      ["a.b", new Map([["train", 8]])],
      ['c"|.*', new Map()],
    ]);
    expect((await askJobsOn([], NOW, new AbortController().signal)).size).toBe(0);
    expect(asked).toHaveLength(1);
  });
});
