import { describe, expect, test } from "vitest";
import { graphOf } from "./fabric-graph";
import { hitAt, pointOf } from "./fabric-hit";
import { placeForLabel } from "./fabric-labels";
import { type Box, layoutOf, placeOfLink, placeOfNode } from "./fabric-layout";
import { madeTopology } from "./fabric-made";
import {
  fitted,
  isCovered,
  isSeen,
  kept,
  lookingAt,
  shiftOf,
  shortened,
  type View,
  zoomed,
} from "./fabric-view";

const canvas = { width: 800, height: 500 };
const drawing = { width: 3000, height: 1000 };
const all = fitted(drawing, canvas);
const onScreen = (view: View, x: number, y: number) => [
  x * view.scale + view.x,
  y * view.scale + view.y,
];

describe("the part that is seen", () => {
  test("fit shows all of it", () => {
    const [left, top] = onScreen(all, 0, 0);
    const [right, bottom] = onScreen(all, drawing.width, drawing.height);
    expect(Math.min(left ?? -1, top ?? -1)).toBeGreaterThanOrEqual(0);
    expect(right).toBeLessThanOrEqual(canvas.width);
    expect(bottom).toBeLessThanOrEqual(canvas.height);
  });

  test("what is under the pointer stays there while it grows", () => {
    const near = zoomed(all, 3, 200, 100, all);
    const [x, y] = [(200 - all.x) / all.scale, (100 - all.y) / all.scale];
    const [px, py] = onScreen(near, x, y);
    expect(px).toBeCloseTo(200);
    expect(py).toBeCloseTo(100);
    expect(zoomed(all, 0.01, 0, 0, all).scale).toBe(all.scale);
    expect(zoomed(all, 1e9, 0, 0, all).scale).toBeLessThan(10);
  });

  test("the drawing cannot be lost", () => {
    const near = zoomed(all, 4, 400, 250, all);
    for (const far of [-1e6, 1e6]) {
      const view = kept({ ...near, x: far, y: far }, drawing, canvas);
      const [left] = onScreen(view, 0, 0);
      const [right] = onScreen(view, drawing.width, 0);
      expect(left).toBeLessThan(canvas.width);
      expect(right).toBeGreaterThan(0);
    }
  });

  test("a place that is too small or outside is brought into the middle", () => {
    const place = { x: 2900, y: 900, w: 10, h: 10 };
    expect(isSeen(all, place, canvas)).toBe(false);
    const view = lookingAt(all, place, canvas);
    expect(isSeen(view, place, canvas)).toBe(true);
    expect(onScreen(view, 2905, 905)).toEqual([400, 250]);
  });

  test("a sheet that is moved shows each point where a new drawing would", () => {
    const pad = { width: 200, height: 125 };
    const wanted = zoomed(all, 1.4, 300, 200, all);
    const shift = shiftOf(all, wanted, pad);
    const [x, y] = onScreen(all, 1234, 567);
    const [wx, wy] = onScreen(wanted, 1234, 567);
    expect(((x ?? 0) + pad.width) * shift.scale + shift.x).toBeCloseTo((wx ?? 0) + pad.width);
    expect(((y ?? 0) + pad.height) * shift.scale + shift.y).toBeCloseTo((wy ?? 0) + pad.height);
    expect(isCovered(shift, pad, canvas)).toBe(true);
    const far = shiftOf(all, { ...all, x: all.x + 201 }, pad);
    expect(isCovered(far, pad, canvas)).toBe(false);
  });
});

describe("what is under the pointer", () => {
  const graph = graphOf(
    madeTopology({ kind: "rail", hosts: 8, nics: 2, hostsPerLeaf: 4, spines: 2, parallel: 2 }),
  );

  test.each(["lines", "cells"] as const)("%s: every link and node is found", (form) => {
    const layout = layoutOf(graph, form, 1.5);
    for (const wire of layout.strands) {
      const [x, y] = pointOf(wire, 0.37);
      expect(hitAt(layout, layout.strands, x, y, 0.01)?.links).toEqual(wire.links);
    }
    for (const { link, x, y, w, h } of layout.cells)
      expect(hitAt(layout, layout.bundles, x + w / 2, y + h / 2, 1)?.links).toEqual([link]);
    for (const index of layout.boxed) {
      const box = placeOfNode(layout, index);
      const hit = box && hitAt(layout, layout.bundles, box.x + box.w / 2, box.y + box.h / 2, 1);
      expect(hit?.focus).toEqual({ kind: "node", index });
    }
  });

  test("a bundle means all its cables; nothing is nothing", () => {
    const layout = layoutOf(graph, "lines", 1.5);
    const bundle = layout.bundles.find((wire) => wire.links.length === 2);
    if (!bundle) throw new Error("no bundle");
    const [x, y] = pointOf(bundle, 0.5);
    expect(hitAt(layout, layout.bundles, x, y, 0.01)?.links).toHaveLength(2);
    expect(hitAt(layout, layout.bundles, -500, -500, 5)).toBeUndefined();
    expect(placeOfLink(layout, 99_999)).toBeUndefined();
  });

  test("lines that are bent are hit where they are drawn", () => {
    const flat = graphOf(madeTopology({ kind: "dragonfly", hosts: 8, nics: 1, hostsPerLeaf: 2 }));
    const layout = layoutOf(flat, "lines", 1.5);
    const bent = layout.strands.filter((wire) => wire.bend > 0);
    expect(bent.length).toBeGreaterThan(0);
    for (const wire of bent) {
      const [x, y] = pointOf(wire, 0.31);
      expect(hitAt(layout, [wire], x, y, 3)?.links).toEqual(wire.links);
    }
  });
});

test("names are shortened from the left, or left out", () => {
  const width = (text: string) => text.length;
  expect(shortened("leaf-pod0-rail3", 20, width)).toBe("leaf-pod0-rail3");
  expect(shortened("leaf-pod0-rail3", 12, width)).toBe("pod0-rail3");
  expect(shortened("leaf-pod0-rail3", 7, width)).toBe("rail3");
  expect(shortened("node0012", 7, width)).toBe("0012");
  expect(shortened("unbreakable", 7, width)).toBe("");
  expect(shortened("x", 2, width)).toBe("");
});

describe("labels of culprits", () => {
  const canvas = { width: 360, height: 300 };
  const ring = (x: number, y: number) => ({ x, y, w: 18, h: 18 });
  const isOver = (one: Box, other: Box) =>
    one.x < other.x + other.w &&
    other.x < one.x + one.w &&
    one.y < other.y + other.h &&
    other.y < one.y + one.h;

  test("lie on no other label and on no ring, and inside the drawing", () => {
    const rings = [ring(90, 150), ring(330, 150), ring(110, 190), ring(20, 270)];
    const taken: Box[] = [...rings];
    for (const [place, one] of rings.entries()) {
      const box = placeForLabel(one, 84, place % 2 === 1, canvas, taken);
      expect(taken.some((other) => isOver(other, box))).toBe(false);
      expect(box.x >= 0 && box.x + box.w <= canvas.width).toBe(true);
      expect(box.y >= 0 && box.y + box.h <= canvas.height).toBe(true);
      taken.push(box);
    }
  });
});
