import { describe, expect, test } from "vitest";
import { focusOf, graphOf, kindName, linkName, search } from "./fabric-graph";
import {
  type Box,
  formFor,
  type Layout,
  layoutOf,
  placeOfLink,
  placeOfNode,
} from "./fabric-layout";
import { type MadeSpec, madeTopology } from "./fabric-made";

const SMALL: MadeSpec = { kind: "rail", hosts: 7, nics: 2, hostsPerLeaf: 4, spines: 2 };
const MANY: MadeSpec = {
  kind: "rail",
  hosts: 1024,
  nics: 8,
  hostsPerLeaf: 32,
  spines: 16,
  parallel: 2,
};
const made = (spec: MadeSpec, change: Partial<MadeSpec> = {}) =>
  graphOf(madeTopology({ ...spec, ...change }));

function overlaps(one: Box, other: Box): boolean {
  const slack = 1e-6;
  return (
    one.x + one.w > other.x + slack &&
    other.x + other.w > one.x + slack &&
    one.y + one.h > other.y + slack &&
    other.y + other.h > one.y + slack
  );
}

/** Every link is drawn, inside the drawing, and no two boxes lie on each other. */
function expectSound(layout: Layout, links: number): void {
  const drawn = new Set([
    ...layout.cells.map((cell) => cell.link),
    ...layout.strands.flatMap((wire) => wire.links),
  ]);
  expect(drawn.size).toBe(links);
  expect(layout.bundles.flatMap((wire) => wire.links).length).toBe(layout.strands.length);
  const slack = 1e-6;
  const outside = [...layout.boxes.flat(), ...layout.cells].filter(
    (box) =>
      box.x < -slack ||
      box.x + box.w > layout.width + slack ||
      box.y + box.h > layout.height + slack,
  );
  expect(outside).toEqual([]);
  for (const boxes of [layout.cells, layout.boxes.flat()]) {
    const inOrder = [...boxes].sort((one, other) => one.y - other.y || one.x - other.x);
    expect(inOrder.filter((box, n) => n > 0 && overlaps(inOrder[n - 1] as Box, box))).toEqual([]);
  }
}

describe("a fabric's drawing", () => {
  test("a small one has a line for each link, spines above leaves above hosts", () => {
    const graph = made(SMALL);
    const layout = layoutOf(graph, formFor(graph), 2);
    expectSound(layout, 22);
    expect(layout.cells).toHaveLength(0);
    const y = (name: string) => placeOfNode(layout, graph.nodeOf.get(name) ?? -1)?.y ?? Number.NaN;
    expect(y("spine-0")).toBeLessThan(y("leaf-pod0-rail0"));
    expect(y("leaf-pod0-rail0")).toBeLessThan(y("node0000"));
    const boxes = layout.boxes.flat();
    for (const one of boxes)
      for (const other of boxes) if (one !== other) expect(overlaps(one, other)).toBe(false);
  });

  test.each([
    ["rails", { ...SMALL, hosts: 32, nics: 8, hostsPerLeaf: 32, spines: 4, parallel: 8 }],
    ["two hundred hosts", { ...MANY, hosts: 256 }],
    ["a fat tree", { ...MANY, kind: "fat_tree", hosts: 64, hostsPerLeaf: 4, parallel: 1 }],
    ["three tiers", { ...MANY, kind: "fat_tree", hosts: 128, hostsPerLeaf: 4, block: 8 }],
    ["a dragonfly", { ...MANY, kind: "dragonfly", hosts: 32, hostsPerLeaf: 2 }],
    ["one switch", { ...MANY, kind: "single", hosts: 32, nics: 1, hostsPerLeaf: 32 }],
    ["one switch and many NICs", { ...MANY, kind: "single", hosts: 16, hostsPerLeaf: 16 }],
  ] as [string, MadeSpec][])("%s: nothing is left out, nothing lies on another", (_, spec) => {
    const graph = made(spec);
    for (const form of ["lines", "cells"] as const)
      for (const aspect of [2.2, 0.9])
        expectSound(layoutOf(graph, form, aspect), graph.links.length);
  });

  test("1,024 hosts of 8 NICs are cells, the same host in the same place under each leaf", () => {
    const graph = made(MANY);
    expect(graph.links).toHaveLength(8192 + 256 * 32);
    expect(formFor(graph)).toBe("cells");
    const layout = layoutOf(graph, "lines", 2.2);
    expectSound(layout, graph.links.length);
    expect(layout.cells).toHaveLength(8192);
    expect(layout.bundles).toHaveLength(256 * 16);
    const boxes = layout.boxes[graph.nodeOf.get("node0005") ?? -1] ?? [];
    expect(boxes).toHaveLength(8);
    expect(new Set(boxes.map((box) => box.y)).size).toBe(1);
    const steps = boxes.slice(1).map((box, n) => box.x - (boxes[n]?.x ?? 0));
    expect(new Set(steps.map((step) => step.toFixed(6))).size).toBe(1);
  });

  test("a cable that is missing leaves its place empty", () => {
    const topology = madeTopology({ ...SMALL, hosts: 64, nics: 2, hostsPerLeaf: 32 });
    const cut = {
      ...topology,
      links: topology.links.filter((link) => !link.id.includes("node0003/mlx5_0")),
    };
    const [whole, part] = [topology, cut].map((one) => layoutOf(graphOf(one), "cells", 2));
    const place = (layout: Layout | undefined, one: typeof topology, name: string) => {
      const graph = graphOf(one);
      const node = graph.nodes[graph.nodeOf.get(name) ?? -1];
      const link = node?.links.find((index) => graph.links[index]?.low.device === "mlx5_0");
      const box = layout && placeOfLink(layout, link ?? -1);
      return box && [box.x, box.y, box.w, box.h];
    };
    expect(place(part, cut, "node0003")).toBeUndefined();
    expect(place(part, cut, "node0004")).toEqual(place(whole, topology, "node0004"));
  });

  test("the order of the service's answer changes nothing", () => {
    const topology = madeTopology({ ...MANY, hosts: 64 });
    const turned = { ...topology, nodes: [...topology.nodes].reverse() };
    const [one, other] = [topology, turned].map((each) => layoutOf(graphOf(each), "lines", 2));
    expect(other?.boxes).toEqual(one?.boxes);
    expect(other?.cells).toEqual(one?.cells);
  });

  test("odd cables are drawn as lines, nodes without cables are listed", () => {
    const topology = madeTopology({ ...MANY, hosts: 64, spines: 2 });
    const base = topology.links[0];
    if (!base) throw new Error("no link");
    const odd = (a: string, b: string) => ({ ...base, id: `${a}|${b}`, a, b });
    const more = {
      ...topology,
      nodes: [
        ...topology.nodes,
        {
          name: "poller",
          kind: "host" as const,
          tier: null,
          rail: null,
          pod: null,
          attributes: {},
        },
        {
          name: "stray",
          kind: "unknown" as const,
          tier: null,
          rail: null,
          pod: null,
          attributes: {},
        },
      ],
      links: [
        ...topology.links,
        odd("node0001/eth9/1", "spine-1/spine-1/Ethernet999"),
        odd("node0002/eth9/1", "node0003/eth9/1"),
        odd("node0002/eth8/1", "stray/eth8/1"),
        odd("unknown/eth8/1", "stray/eth9/1"),
      ],
    };
    const graph = graphOf(more);
    expect(graph.links).toHaveLength(topology.links.length + 3);
    const layout = layoutOf(graph, "cells", 2);
    expectSound(layout, graph.links.length);
    expect(layout.strands).toHaveLength(3);
    expect(layout.loose.map((index) => graph.nodes[index]?.name)).toEqual(["poller"]);
  });

  test("nothing at all is a drawing, too", () => {
    const graph = graphOf({ at: "", nodes: [], ports: [], links: [], conflicts: [] });
    expectSound(layoutOf(graph, formFor(graph), 2), 0);
  });
});

describe("names", () => {
  const graph = made(SMALL);
  const link = graph.linkAt.get("node0005/mlx5_0/1") ?? -1;

  test.each([
    ["node0005/mlx5_0/1"],
    ["node0005/mlx5_0"],
    ["node0005 mlx5_0"],
    ["leaf-pod1-rail0/leaf-pod1-rail0/Ethernet12"],
    ["leaf-pod1-rail0/Ethernet12"],
    [graph.links[link]?.id ?? ""],
  ])("%s is that link", (word) => {
    expect(focusOf(graph, word)).toEqual({ kind: "link", index: link });
  });

  test("a name is a node, and nothing is nothing", () => {
    expect(focusOf(graph, "spine-1")).toEqual({
      kind: "node",
      index: graph.nodeOf.get("spine-1"),
    });
    for (const word of ["", "node0005/mlx5_9", "unknown", "node0005/"])
      expect(focusOf(graph, word)).toBeUndefined();
  });

  test("links, nodes and rails have names", () => {
    const one = graph.links[link];
    expect(one && linkName(one)).toBe("node0005 mlx5_0 – leaf-pod1-rail0 Ethernet12");
    const kind = (name: string) => {
      const node = graph.nodes[graph.nodeOf.get(name) ?? -1];
      return node && kindName(graph, node);
    };
    expect(kind("leaf-pod0-rail1")).toBe("Leaf of rail 1");
    expect(kind("spine-0")).toBe("Spine");
    expect(kind("node0000")).toBe("Host");
    expect(graph.rails).toEqual([0, 1]);
  });

  test("what is typed finds nodes before ports, up to a bound", () => {
    expect(search(graph, "node0005", 9).map((found) => found.label)).toEqual(["node0005"]);
    expect(search(graph, "0005 MLX5_1", 9).map((found) => found.word)).toEqual([
      "node0005/mlx5_1/1",
    ]);
    expect(search(graph, "node", 3)).toHaveLength(3);
    expect(search(graph, " ", 3)).toHaveLength(0);
  });
});
