import { describe, expect, it } from "vitest";
import type { Row } from "./heat";
import { marginOf } from "./heat-labels";

const rowsOf = (ranks: number, perHost: number): Row[] =>
  Array.from({ length: ranks }, (_, rank) => ({
    members: [rank],
    rank,
    host: `node${Math.floor(rank / perHost)}`,
  }));

describe("names beside rows", () => {
  it("are all there where there is room", () => {
    const { numbers, hosts } = marginOf(rowsOf(16, 4), 320);
    expect(numbers).toHaveLength(16);
    expect(numbers[3]).toMatchObject({ text: "3", row: 3, y: 70 });
    expect(hosts.map(({ text, rows, y }) => [text, rows, y])).toEqual([
      ["node0", 4, 40],
      ["node1", 4, 120],
      ["node2", 4, 200],
      ["node3", 4, 280],
    ]);
  });

  it("thin out evenly, and never overlap", () => {
    const { numbers, hosts } = marginOf(rowsOf(1024, 8), 480);
    for (const labels of [numbers, hosts])
      labels.slice(1).forEach((label, place) => {
        expect(label.y - (labels[place]?.y ?? 0)).toBeGreaterThanOrEqual(12);
      });
    expect(numbers.length).toBe(31);
    expect(hosts.length).toBeGreaterThan(10);
  });

  it("of hosts' own rows have no numbers", () => {
    const rows = [{ members: [0, 1], rank: undefined, host: "a" }];
    expect(marginOf(rows, 64).numbers).toEqual([]);
    expect(marginOf(rows, 64).hosts).toHaveLength(1);
  });

  it("of rows without a host are left out", () => {
    expect(marginOf([{ members: [0], rank: 0, host: null }], 64).hosts).toEqual([]);
  });
});
