import { expect, it } from "vitest";
import { parquetOf } from "./parquet";

const text = (bytes: Uint8Array) => new TextDecoder("latin1").decode(bytes);

it("is a file with its mark at both ends and the length of its footer", () => {
  const file = parquetOf(["host", "seconds"], [["node1", 1.5]]);
  expect(text(file.slice(0, 4))).toBe("PAR1");
  expect(text(file.slice(-4))).toBe("PAR1");
  const length = new DataView(file.buffer).getInt32(file.length - 8, true);
  expect(length).toBeGreaterThan(20);
  expect(length).toBeLessThan(file.length - 12);
  expect(text(file.slice(-8 - length))).toContain("seconds");
});

it("holds numbers as numbers only where all cells are", () => {
  const numbers = parquetOf(["n"], [[1], [2]]);
  expect(
    new DataView(numbers.buffer).getFloat64(numbers.length - 8 - footer(numbers) - 8, true),
  ).toBe(2);
  expect(text(parquetOf(["n"], [[1], ["none"]]))).toContain("none");
});

const footer = (file: Uint8Array<ArrayBuffer>) =>
  new DataView(file.buffer).getInt32(file.length - 8, true);
