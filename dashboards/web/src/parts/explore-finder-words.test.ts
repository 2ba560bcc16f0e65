import { describe, expect, it } from "vitest";
import type { Metric } from "../api/metadata";
import { describedNames, foundMetrics, suggested, targetsOf } from "./explore-finder-words";

const metric = (name: string, more: Partial<Metric> = {}): Metric => ({
  name,
  target: "port",
  kind: "counter",
  unit: "bytes",
  help: "",
  labels: [],
  aliases: [],
  ...more,
});
const sent = metric("fabric_port_transmit_bytes_total", { help: "Bytes that were sent." });
const clock = metric("fabric_gpu_sm_clock_hertz", {
  kind: "gauge",
  unit: "hertz",
  target: "gpu",
  help: "How fast it runs; it is lower while throttled.",
  aliases: [{ exporter: "dcgm-exporter", name: "DCGM_FI_DEV_SM_CLOCK", factor: 1e6 }],
});
const catalog = [sent, clock];

describe("the finder", () => {
  const names = (search: string, stored: string[] = []) =>
    foundMetrics(catalog, new Set(stored), search).map((one) => one.metric.name);

  it("looks into names, help and other exporters' names", () => {
    expect(names("sent")).toEqual([sent.name]);
    expect(names("dcgm clock")).toEqual([clock.name]);
    expect(names("throttled GPU")).toEqual([clock.name]);
    expect(names("sent throttled")).toEqual([]);
    expect(names("")).toHaveLength(2);
  });

  it("can look at one kind of thing", () => {
    expect(foundMetrics(catalog, new Set(), "", "gpu").map((one) => one.metric)).toEqual([clock]);
    const agent = metric("fabric_agent_up", { target: "agent" });
    expect(targetsOf([agent, ...catalog])).toEqual([
      { name: "port", metrics: 1 },
      { name: "gpu", metrics: 1 },
      { name: "agent", metrics: 1 },
    ]);
    expect(foundMetrics([agent, sent], new Set(), "")[0]?.metric).toBe(sent);
  });

  it("says of no metric that it has no data while that is not known", () => {
    const found = foundMetrics(catalog, undefined, "");
    expect(found).toHaveLength(catalog.length);
    expect(found.every((one) => one.hasData)).toBe(true);
  });

  it("puts metrics that have data first, also by another exporter's name", () => {
    const found = foundMetrics(catalog, new Set(["DCGM_FI_DEV_SM_CLOCK"]), "");
    expect(found.map((one) => [one.metric.name, one.hasData])).toEqual([
      [clock.name, true],
      [sent.name, false],
    ]);
  });
});

describe("a suggestion", () => {
  it("fits the kind and the time", () => {
    expect(suggested(sent, 1800)).toBe("rate(fabric_port_transmit_bytes_total[1m])");
    expect(suggested(sent, 86_400)).toBe("rate(fabric_port_transmit_bytes_total[5m])");
    expect(suggested(clock, 1800)).toBe(clock.name);
    expect(suggested(metric("x_seconds", { kind: "histogram" }), 1800)).toContain(
      "rate(x_seconds_bucket[1m])",
    );
  });
});

describe("completion", () => {
  it("shows type, unit and help, and whose name it is", () => {
    const names = describedNames(catalog, {
      other_total: [{ type: "counter", help: "theirs" }],
      [sent.name]: [{ type: "counter", help: "old" }],
    });
    expect(names[sent.name]).toEqual([{ type: "counter, bytes", help: sent.help }]);
    expect(names.other_total?.[0]?.help).toBe("theirs");
    expect(names.DCGM_FI_DEV_SM_CLOCK?.[0]?.help).toContain(
      "dcgm-exporter's name of fabric_gpu_sm_clock_hertz",
    );
  });
});
