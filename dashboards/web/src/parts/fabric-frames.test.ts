import { describe, expect, test } from "vitest";
import type { FabricState } from "../api/fabric";
import type { IncidentShort } from "../api/incidents";
import {
  columnsOf,
  Frame,
  frameAt,
  pauseWord,
  peaks,
  quietWords,
  summaryOf,
  type Values,
  valueWord,
} from "./fabric-frames";
import { graphOf } from "./fabric-graph";
import { lanesOf } from "./fabric-lanes";
import { madeTopology } from "./fabric-made";
import { isAt, marksOf, placeOf } from "./fabric-marks";
import { linksBetween, linksOfRail } from "./fabric-paths";
import {
  BUCKETS,
  bucketOf,
  DOWN,
  NO_DATA,
  QUANTITIES,
  type Quantity,
  worstBucket,
} from "./fabric-scale";

const topology = madeTopology({ kind: "rail", hosts: 8, nics: 2, hostsPerLeaf: 4, spines: 2 });
const graph = graphOf(topology);
const linkAt = (port: string) => graph.linkAt.get(port) ?? -1;
const [BUSY, BAD, GONE] = ["node0001/mlx5_0/1", "node0002/mlx5_1/1", "node0003/mlx5_0/1"].map(
  linkAt,
) as [number, number, number];

/** Two frames; all idle but a busy link, one with errors and pause, and in the second one that is down. */
function made(): FabricState {
  const links = graph.links.map((link) => link.id).reverse();
  const column = (link: number) => links.indexOf(graph.links[link]?.id ?? "");
  const width = links.length;
  const zero = () => new Float32Array(2 * width);
  const state = {
    times: [1000, 1020],
    stepSeconds: 20,
    links,
    utilisation: zero(),
    forward: zero(),
    backward: zero(),
    errors: zero(),
    worstErrors: new Uint8Array(2 * width).fill(255),
    errorKinds: ["symbol_errors", "damaged_packets"],
    pause: zero(),
    pauseAtMost: zero().fill(Number.NaN),
    up: new Float32Array(2 * width).fill(1),
  };
  for (const frame of [0, 1]) {
    state.utilisation[frame * width + column(BUSY)] = 0.9;
    state.backward[frame * width + column(BUSY)] = 0.9;
    state.errors[frame * width + column(BAD)] = 20;
    state.worstErrors[frame * width + column(BAD)] = 1;
    state.pause[frame * width + column(BAD)] = 0.3;
  }
  state.up[width + column(GONE)] = 0;
  return state;
}
const state = made();
const frame = (index: number, of = state) => new Frame(graph, of, columnsOf(graph, of), index);

describe("a moment", () => {
  test("links are matched by their names, in whatever order the state has them", () => {
    expect(frame(0).link(BUSY)).toEqual({
      utilisation: Math.fround(0.9),
      forward: 0,
      backward: Math.fround(0.9),
      errors: 0,
      pause: 0,
      pauseAtMost: Number.NaN,
      isUp: true,
    });
    expect(frame(1).isUp(GONE)).toBe(false);
    expect(frame(0).errorsOf(BAD)).toBe("damaged packets");
    expect(frame(0).errorsOf(BUSY)).toBe("");
  });

  test("a link that the state does not know is unknown, and not idle", () => {
    const cut = { ...state, links: state.links.map((id) => (id.includes("spine-0") ? "x" : id)) };
    const link = graph.links.findIndex(({ id }) => id.includes("spine-0"));
    expect(frame(0, cut).buckets("errors")[link]).toBe(NO_DATA);
    expect(frame(0, cut).isUp(link)).toBeUndefined();
    expect(frame(0, cut).series(cut.errors, link)).toEqual([null, null]);
    expect(valueWord(frame(0, cut), "errors", link)).toBe("no data");
  });

  test("the worst come first, those that are down before all; what has nothing is no trouble", () => {
    expect(frame(0).worst("errors")).toEqual([BAD]);
    expect(frame(1).worst("errors")).toEqual([GONE, BAD]);
    expect(frame(1).worst("errors", new Set([BAD, BUSY]))).toEqual([BAD]);
    expect(frame(1).buckets("pause")[GONE]).toBe(DOWN);
    expect(valueWord(frame(1), "errors", GONE)).toBe("down");
  });

  test("one sentence gives the point", () => {
    const busiest = "The busiest carries 90 %: node0001 mlx5_0 – leaf-pod0-rail0 Ethernet12.";
    expect(summaryOf(frame(0))).toBe(`24 links, 1 with errors, 1 paused. ${busiest}`);
    expect(summaryOf(frame(1))).toBe(`24 links, 1 down, 1 with errors, 1 paused. ${busiest}`);
    const none = { ...state, links: [] };
    expect(frame(0, none).isEmpty).toBe(true);
    expect(frame(0).isEmpty).toBe(false);
    expect(summaryOf(frame(0, none))).toBe("24 links; none has a reading at this moment.");
  });

  test("frames of which nobody counted the time are a bound, and no pause that was seen", () => {
    const link = frame(0).link(BUSY);
    expect(pauseWord(link)).toBe("0 %");
    const unknown = Number.NaN;
    expect(pauseWord({ ...link, pause: unknown })).toBe("");
    expect(pauseWord({ ...link, pause: 0.0002 })).toBe("0.02 %");
    expect(pauseWord({ ...link, pause: unknown, pauseAtMost: 1 })).toBe("at most 100 %");
    expect(pauseWord({ ...link, pause: 0, pauseAtMost: 0.4 })).toBe("at most 40 %");
    expect(pauseWord({ ...link, pause: 0.09, pauseAtMost: 0.4 })).toBe("9 % to 40 %");
    expect(pauseWord({ ...link, pause: 0.4, pauseAtMost: 0.4001 })).toBe("40 %");
    const bound = {
      ...state,
      pause: new Float32Array(state.pause.length).fill(Number.NaN),
      pauseAtMost: new Float32Array(state.pause.length).fill(1),
    };
    expect(frame(0, bound).worst("pause")).toEqual([]);
    expect(frame(0, bound).buckets("pause")[BUSY]).toBe(NO_DATA);
    expect(valueWord(frame(0, bound), "pause", BUSY)).toBe("at most 100 %");
    expect(summaryOf(frame(0, bound))).not.toContain("paused");
  });

  test("what no plot shows is told apart from what nobody counts", () => {
    const [none, calm, some]: Values[] = [
      [null, null],
      [0, null],
      [0.2, 0],
    ];
    const said = (errors: Values = [], pause: Values = [], atMost: Values = []) =>
      quietWords({ errors, pause, atMost });
    expect(said(calm, calm)).toBe("No errors and no pause in this range.");
    expect(said(calm, none)).toBe("No errors in this range; no readings of pause.");
    expect(said(none, calm)).toBe("No pause in this range; no readings of errors.");
    expect(said(none, none)).toBe("No readings of errors or pause in this range.");
    expect(said(some, calm)).toBe("");
    expect(said(some, none, [null, 1])).toContain("at most 100 % of the time");
  });

  test("the nearest frame is shown, without a moment the last", () => {
    expect(frameAt(state.times, undefined)).toBe(1);
    expect(frameAt(state.times, 1009)).toBe(0);
    expect(frameAt(state.times, 5000)).toBe(1);
    expect(frameAt([], 3)).toBe(0);
  });

  test("the slider shows each moment's worst; a gap is no zero", () => {
    expect(peaks(state, "errors")).toEqual([
      { most: 20, down: 0 },
      { most: 20, down: 1 },
    ]);
    const none = { ...state, errors: new Float32Array(state.errors.length).fill(Number.NaN) };
    expect(peaks(none, "errors")[0]?.most).toBeNaN();
  });
});

describe("colours", () => {
  test.each(Object.keys(QUANTITIES) as Quantity[])("%s: more is never less", (quantity) => {
    const values = [0, 1e-6, 0.01, 0.1, 0.5, 0.99, 1, 10, 1e4, 1e6, 1e9];
    const buckets = values.map((value) => bucketOf(quantity, value));
    expect([...buckets].sort((one, other) => one - other)).toEqual(buckets);
    expect(buckets[0]).toBe(0);
    expect(buckets[1]).toBeGreaterThan(0);
    expect(buckets.at(-1)).toBe(BUCKETS - 1);
    expect(bucketOf(quantity, Number.NaN)).toBe(NO_DATA);
  });

  test("a bundle is as bad as its worst cable", () => {
    const buckets = Uint8Array.from([3, 9, NO_DATA, DOWN]);
    expect(worstBucket(buckets, [0, 1, 2])).toBe(9);
    expect(worstBucket(buckets, [2])).toBe(NO_DATA);
    expect(worstBucket(buckets, [1, 3])).toBe(DOWN);
  });
});

describe("culprits", () => {
  const incident = (change: Partial<IncidentShort>) =>
    ({
      id: "i",
      state: "closed",
      cause: "lossy_link",
      culprit: { host: "node0002", device: "mlx5_1", port: "1" },
      since_ns: 100e9,
      until_ns: 200e9,
      closed_ns: 260e9,
      gpu_hours: 1,
      summary: "",
      ...change,
    }) as IncidentShort;

  test("a culprit is the link at either of its ports, else its switch, else its host", () => {
    const link = { kind: "link", index: BAD };
    expect(placeOf(graph, { host: "node0002", device: "mlx5_1", port: "1" })).toEqual(link);
    expect(placeOf(graph, { host: "node0002", device: "mlx5_1" })).toEqual(link);
    expect(placeOf(graph, { switch: "leaf-pod0-rail1", switch_port: "Ethernet16" })).toEqual(link);
    const node = (name: string) => ({ kind: "node", index: graph.nodeOf.get(name) });
    expect(placeOf(graph, { switch: "spine-1", switch_port: "no" })).toEqual(node("spine-1"));
    expect(placeOf(graph, { host: "node0004", gpu: 3 })).toEqual(node("node0004"));
    expect(placeOf(graph, { host: "elsewhere" })).toBeUndefined();
    expect(placeOf(graph, { job: "j" })).toBeUndefined();
  });

  test("they are marked while they are at fault, the costliest first", () => {
    const past = incident({});
    expect([50, 100, 150, 200, 201].map((at) => isAt(past, at))).toEqual([
      false,
      true,
      true,
      true,
      false,
    ]);
    const open = incident({
      id: "o",
      state: "open",
      until_ns: null,
      closed_ns: null,
      gpu_hours: 9,
    });
    // A frame that ends after it, but shows the mean of a stretch that it lies within.
    expect(isAt(past, 210, 30)).toBe(true);
    expect(isAt(past, 240, 30)).toBe(false);
    expect(marksOf(graph, [past, open], 150, { asked: "i" }).map((mark) => mark.incident)).toEqual([
      "i",
      "o",
    ]);
    expect(isAt(past, undefined)).toBe(false);
    expect(isAt(open, undefined)).toBe(true);
    expect(marksOf(graph, [past, open], 150).map((mark) => mark.incident)).toEqual(["o", "i"]);
    expect(marksOf(graph, [past, open], undefined)[0]?.cause).toBe("lossy link");
  });
});

describe("what a job or a rail can use", () => {
  const names = (links: Set<number>) => [...links].map((link) => graph.links[link]?.id ?? "");
  const hosts = (...each: [string, string[]][]) =>
    new Map(each.map(([host, devices]) => [host, new Set(devices)]));

  test("hosts of one pod meet at their leaf", () => {
    const lit = names(
      linksBetween(graph, hosts(["node0000", ["mlx5_0"]], ["node0001", ["mlx5_0"]])),
    );
    expect(lit).toHaveLength(2);
    expect(lit.every((id) => id.includes("leaf-pod0-rail0"))).toBe(true);
  });

  test("hosts of two pods meet at any spine", () => {
    const lit = names(
      linksBetween(graph, hosts(["node0000", ["mlx5_0"]], ["node0005", ["mlx5_0"]])),
    );
    expect(lit).toHaveLength(2 + 4);
    expect(lit.filter((id) => id.includes("spine-"))).toHaveLength(4);
  });

  test("hosts that others use are not lit, also where a job uses all rails", () => {
    const lit = names(linksBetween(graph, hosts(["node0000", []], ["node0005", []])));
    expect(lit).toHaveLength(2 * 2 + 2 * 4);
    expect(lit.some((id) => id.includes("node0001"))).toBe(false);
  });

  test("without a word on NICs all of a host's are lit; a stranger lights nothing", () => {
    expect(linksBetween(graph, hosts(["node0000", []], ["node0001", []])).size).toBe(4);
    expect(linksBetween(graph, hosts(["unknown", []])).size).toBe(0);
  });

  test("a rail is its NICs' links and its leaves' uplinks", () => {
    const lit = names(linksOfRail(graph, 1));
    expect(lit).toHaveLength(8 + 4);
    expect(lit.every((id) => id.includes("rail1"))).toBe(true);
  });

  test("in a dragonfly the ways between routers are lit", () => {
    const flat = graphOf(madeTopology({ kind: "dragonfly", hosts: 16, nics: 1, hostsPerLeaf: 2 }));
    const lit = linksBetween(flat, hosts(["node0000", []], ["node0002", []]));
    const ids = [...lit].map((link) => flat.links[link]?.id ?? "");
    expect(ids.some((id) => id.includes("group0-0/") && id.includes("group0-1/"))).toBe(true);
  });
});

test("incidents at the same time stand in rows, as many as there is room for", () => {
  const stretch = (from: number, to: number) => ({ from, to, label: `${from}` });
  const all = [stretch(5, 30), stretch(0, 10), stretch(12, 20), stretch(6, 9), stretch(90, 99)];
  const { lanes, leftOut } = lanesOf(all, 0, 50, 2);
  expect(lanes.map((lane) => lane.map((one) => one.label))).toEqual([["0", "12"], ["5"]]);
  expect(leftOut).toBe(1);
});
