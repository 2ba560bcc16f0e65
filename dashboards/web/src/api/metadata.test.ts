import { describe, expect, it, vi } from "vitest";

vi.stubGlobal("sessionStorage", { getItem: () => null });
const { Kept } = await import("./metadata");

describe("answers that are kept", () => {
  it("are asked for once, and again when they are old", async () => {
    let time = 0;
    let asked = 0;
    const kept = new Kept(60, 10, () => time);
    const load = async () => ++asked;
    expect(await kept.get("a", load)).toBe(1);
    time = 59;
    expect(await kept.get("a", load)).toBe(1);
    time = 61;
    expect(await kept.get("a", load)).toBe(2);
  });

  it("are bounded, the oldest goes", async () => {
    let asked = 0;
    const kept = new Kept(60, 2, () => 0);
    const load = async () => ++asked;
    for (const key of ["a", "b", "c"]) await kept.get(key, load);
    expect(await kept.get("c", load)).toBe(3);
    expect(await kept.get("a", load)).toBe(4);
  });

  it("are not kept if they failed", async () => {
    const kept = new Kept(60, 2, () => 0);
    await expect(kept.get("a", () => Promise.reject(new Error("no")))).rejects.toThrow("no");
    expect(await kept.get("a", async () => "yes")).toBe("yes");
  });
});
