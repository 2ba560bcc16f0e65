import { describe, expect, it } from "vitest";
import type { Cell } from "../api/matrix";
import {
  coloursOf,
  enough,
  every,
  FAINT,
  gridOf,
  kept,
  naturally,
  packed,
  paint,
  scaleOf,
  showing,
  telling,
  VISIBLE,
  whole,
  zoomed,
} from "./matrix-grid";

function cell(source: string, target: string, bytes: number, more: Partial<Cell> = {}): Cell {
  return {
    source,
    target,
    bytes,
    bytes_per_second: bytes,
    transfer_bytes_per_second: bytes,
    how: "modelled",
    measured_bytes: 0,
    counted_bytes: null,
    is_local: false,
    ...more,
  };
}

describe("axes", () => {
  it("orders names as people count", () => {
    expect(naturally(["node10", "node2", "node2/mlx5_1", "node2"])).toEqual([
      "node2",
      "node2/mlx5_1",
      "node10",
    ]);
  });

  it("has a row for who sends nothing", () => {
    const grid = gridOf([cell("0", "2", 5)], ["1"]);
    expect(grid.names).toEqual(["0", "1", "2"]);
    expect([...grid.sent]).toEqual([5, 0, 0]);
    expect(grid.at(0, 2)?.bytes).toBe(5);
    expect(grid.at(2, 0)).toBeUndefined();
  });

  it("draws a line where another host begins, and none where each is a host", () => {
    expect(gridOf([], ["a/0", "a/1", "b/0", "b/1"]).borders).toEqual([2]);
    expect(gridOf([], ["a", "b", "c"]).borders).toEqual([]);
    expect(gridOf([], ["0", "1", "2"], (name) => (name === "2" ? "b" : "a")).borders).toEqual([2]);
  });

  it("sums what leaves hosts, and what stays only where nothing leaves", () => {
    const local = cell("a", "a", 100, { is_local: true });
    expect([...gridOf([local, cell("a", "b", 3)]).sent]).toEqual([3, 0]);
    expect([...gridOf([local]).sent]).toEqual([100]);
  });
});

describe("colours", () => {
  const paints = {
    ground: [0, 0, 0] as const,
    network: (share: number) => [Math.round(share * 100), 0, 0] as const,
    local: (share: number) => [0, Math.round(share * 100), 0] as const,
  };
  const colourAt = (share: number) => packed(paints.network(share));

  it("makes much hot, and what is next to nothing faint", () => {
    const grid = gridOf([cell("a", "b", 1000), cell("b", "a", 500), cell("a", "c", 0.5)]);
    const [tiny, half, full] = coloursOf(grid, "bytes", paints);
    expect(full).toBe(colourAt(1));
    expect(half).toBe(colourAt(VISIBLE + (1 - VISIBLE) / 2));
    expect(tiny).toBe(colourAt(FAINT));
  });

  it("makes slow hot, and leaves out those whose speed means nothing", () => {
    const grid = gridOf([
      cell("a", "b", 1000, { transfer_bytes_per_second: 100 }),
      cell("b", "a", 999, { transfer_bytes_per_second: 25 }),
      cell("a", "c", 998, { transfer_bytes_per_second: null }),
      cell("c", "a", 0.1, { transfer_bytes_per_second: 1 }),
    ]);
    const [barrier, unknown, slow, fast] = coloursOf(grid, "speed", paints);
    expect(fast).toBe(colourAt(VISIBLE));
    expect(slow).toBe(colourAt(VISIBLE + (1 - VISIBLE) * 0.75));
    expect(unknown).toBe(colourAt(FAINT));
    expect(barrier).toBe(colourAt(FAINT));
  });

  it("measures what stays in a host by its own kind", () => {
    const grid = gridOf([cell("a", "b", 1), cell("a", "a", 1000, { is_local: true })]);
    const colours = coloursOf(grid, "bytes", paints);
    expect(colours[0]).toBe(colourAt(1));
    expect(colours[1]).toBe(packed(paints.local(1)));
    expect(telling(grid).map((one) => one.target)).toEqual(["b"]);
    expect(enough(grid, true)).toHaveLength(1);
  });

  it("is opaque in the order that a canvas has", () => {
    expect(packed([1, 2, 3])).toBe(0xff030201);
  });
});

describe("what is seen", () => {
  it("zooms about the pointer and stays within the matrix", () => {
    const near = zoomed(whole(100), 100, 0.5, 0.25, 0.75);
    expect(near).toEqual({ span: 50, left: 12.5, top: 37.5 });
    expect(zoomed(near, 100, 10)).toEqual(whole(100));
    expect(zoomed(whole(100), 100, 0.0001).span).toBe(4);
    expect(zoomed(whole(2), 2, 0.5)).toEqual(whole(2));
    expect(kept({ left: -5, top: 99, span: 10 }, 100)).toEqual({ left: 0, top: 90, span: 10 });
  });

  it("follows the chosen cell", () => {
    const sight = { left: 10, top: 10, span: 10 };
    expect(showing(sight, 100, 15, 15)).toEqual(sight);
    expect(showing(sight, 100, 9, 20)).toEqual({ left: 11, top: 9, span: 10 });
  });

  it("writes as many names as have room", () => {
    expect(every(20, 13)).toBe(1);
    expect(every(4, 13)).toBe(4);
    expect(every(0.6, 13)).toBe(32);
    expect(every(0.01, 13)).toBe(2000);
  });
});

describe("pixels", () => {
  const painted = (cells: Cell[], names: string[], side: number, sight = whole(names.length)) => {
    const grid = gridOf(cells, names);
    const pixels = new Uint32Array(side * side);
    paint(pixels, side, grid, new Uint32Array(grid.cells.map((one) => one.bytes)), sight, 7);
    return pixels;
  };
  const names = ["0", "1", "2", "3"];

  it("fills a cell's square and leaves a line to the next", () => {
    const pixels = painted([cell("1", "2", 5)], names, 40);
    expect(pixels[10 * 40 + 20]).toBe(5);
    expect(pixels[18 * 40 + 28]).toBe(5);
    expect(pixels[19 * 40 + 28]).toBe(7);
    expect(pixels[18 * 40 + 29]).toBe(7);
    expect(pixels[9 * 40 + 20]).toBe(7);
  });

  it("shows cells that are smaller than a pixel, the largest on top", () => {
    const many = Array.from({ length: 100 }, (_, place) => String(place));
    const pixels = painted([cell("50", "50", 9), cell("51", "51", 3)], many, 10);
    expect(pixels[5 * 10 + 5]).toBe(9);
    expect([...pixels].filter((one) => one === 9)).toHaveLength(4);
  });

  it("cuts what reaches over the edge", () => {
    const sight = { left: 1.5, top: 0, span: 2 };
    const pixels = painted([cell("0", "1", 5), cell("0", "3", 6)], names, 20, sight);
    expect(pixels[0]).toBe(5);
    expect(pixels[3]).toBe(5);
    expect(pixels[19]).toBe(6);
    expect(pixels[10]).toBe(7);
  });
});

describe("a scale", () => {
  it("leaves out what is not known", () => {
    expect(scaleOf([3, Number.NaN, 1, 2, 10])).toEqual({ least: 1, median: 2.5, most: 10 });
    expect(scaleOf([]).most).toBeNaN();
  });
});
