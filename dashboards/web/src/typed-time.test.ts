import { expect, it, vi } from "vitest";

vi.stubGlobal("localStorage", { getItem: () => "utc", setItem: () => undefined });
const { typedTime, writtenTime } = await import("./typed-time");
const { zone } = await import("./zone");
zone.value = "utc";

/** 2026-11-15 09:08:00 UTC. */
const NOW = 1_794_733_680;

it("reads what people type", () => {
  const at = (text: string) => typedTime(text, NOW);
  expect(at("09:00")).toBe(NOW - 480);
  expect(at("9:00:30")).toBe(NOW - 450);
  expect(at("2026-11-15 09:00")).toBe(NOW - 480);
  expect(at("2026-11-15T09:00:00Z")).toBe(NOW - 480);
  expect(at("2026-11-15")).toBe(NOW - 9 * 3600 - 480);
  expect(at("now")).toBe(NOW);
  expect(at("2h ago")).toBe(NOW - 7200);
  expect(at("-30m")).toBe(NOW - 1800);
  expect(at("now-1d")).toBe(NOW - 86_400);
  expect(at(String(NOW))).toBe(NOW);
});

it("refuses what is no time", () => {
  for (const text of ["", "soon", "25:00", "2026-13-01", "2026-11-32", "09:61", "12", "2w ago"])
    expect(typedTime(text, NOW), text).toBeUndefined();
});

it("writes what it reads back", () => {
  expect(writtenTime(NOW)).toBe("2026-11-15 09:08:00");
  expect(typedTime(writtenTime(NOW), 0)).toBe(NOW);
});
