import { beforeAll, describe, expect, it, vi } from "vitest";

type Module = typeof import("./job-series");
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
    expect(series.gpuQuestion('j"}', place)).toContain(String.raw`job="j\"}"`);
  });

  it("ask for the rank's own only where it is known", () => {
    expect(series.trafficQuestion("j", undefined, "[30s]")).not.toContain('"transmit own"');
    const place = { host: "a", gpu: null, devices: ["mlx5_0"] };
    expect(series.trafficQuestion("j", place, "[30s]")).toContain('"transmit own"');
    expect(series.gpuQuestion("j", place)).not.toContain("own");
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
