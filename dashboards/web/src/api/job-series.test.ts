import { beforeAll, describe, expect, it, vi } from "vitest";

type Module = typeof import("./job-series");
type Beside = import("./job-series").Asked;
let series: Module;

beforeAll(async () => {
  // The client keeps its token there; a browser has it, Node has not.
  vi.stubGlobal("sessionStorage", { getItem: () => null });
  series = await import("./job-series");
});

describe("questions", () => {
  it("quote names from outside, also inside patterns", () => {
    const place = { host: 'a"b', gpu: "0", devices: ["mlx5.0", "x|y"] };
    expect(series.ofPlace(place)).toBe(String.raw`{host="a\"b",device=~"mlx5\\.0|x\\|y"}`);
    expect(series.gpuQuestion('j"}')).toContain(String.raw`job="j\"}"`);
  });

  it("ask for the rank's own only where it is known", () => {
    expect(series.ownTrafficQuestion(undefined, "[30s]")).toBe("");
    const place = { host: "a", gpu: null, devices: ["mlx5_0"] };
    expect(series.ownTrafficQuestion(place, "[30s]")).toContain('"transmit own"');
    expect(series.ownGpuQuestion(place)).toBe("");
    expect(series.ownGpuQuestion({ ...place, gpu: "1" })).toContain('gpu="1"');
  });

  it("put the rank's own beside all of the same time, and of no other", () => {
    const one = { labels: { what: "a" }, times: [], values: [] };
    const all = { from: 0, step: 5, count: 3, series: [one] } as unknown as Beside;
    const own = { ...all, series: [{ ...one, labels: { what: "b" } }] } as unknown as Beside;
    const names = (asked: Beside | undefined) => asked?.series.map(({ labels }) => labels.what);
    expect(names(series.beside(all, own))).toEqual(["a", "b"]);
    expect(names(series.beside(all, { ...own, from: 5 }))).toEqual(["a"]);
    expect(names(series.beside(all, undefined))).toEqual(["a"]);
    expect(series.beside(undefined, own)).toBeUndefined();
  });

  it("look at far ends for errors: damage is counted where it arrives", () => {
    expect(series.troubleQuestion("j", "errors", "[30s]")).toContain("fabric_link_info");
    expect(series.troubleQuestion("j", "paused", "[30s]")).not.toContain("fabric_link_info");
  });

  it("take longer windows for longer ranges", () => {
    expect(series.rateWindow(0, 60)).toBe("[30s]");
    expect(series.rateWindow(0, 86_400)).toBe("[720s]");
  });
});
