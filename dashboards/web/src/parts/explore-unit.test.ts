import { describe, expect, it } from "vitest";
import type { Metric } from "../api/metadata";
import { finder, formatOf, unitOf, unitWords } from "./explore-unit";

function metric(name: string, kind: Metric["kind"], unit: string, aliases: string[] = []): Metric {
  return {
    name,
    kind,
    unit,
    target: "port",
    help: "",
    labels: [],
    aliases: aliases.map((alias) => ({
      exporter: "other",
      name: alias,
      factor: alias === "DCGM_CLOCK" ? 1e6 : 1,
    })),
  };
}

const find = finder([
  metric("sent_bytes_total", "counter", "bytes", ["node_sent_bytes"]),
  metric("drops_total", "counter", ""),
  metric("paused_seconds_total", "counter", "seconds"),
  metric("clock_hertz", "gauge", "hertz", ["DCGM_CLOCK"]),
  metric("busy_ratio", "gauge", "ratio"),
  metric("wait_seconds", "histogram", "seconds"),
  metric("agent_start_time_seconds", "gauge", "seconds"),
]);
const unit = (query: string) => unitOf(query, find);

describe("the unit of a query", () => {
  it("is the metric's", () => {
    expect(unit("sent_bytes_total")).toBe("bytes");
    expect(unit('clock_hertz{host="a\\"b", gpu=~"1|2"} offset 5m')).toBe("hertz");
    expect(unit('{__name__="busy_ratio", host="a"}')).toBe("ratio");
    expect(unit('{"busy_ratio"}')).toBe("ratio");
    expect(unit("( clock_hertz @ end() )")).toBe("hertz");
    expect(unit("agent_start_time_seconds")).toBe("time");
    expect(unit("drops_total")).toBe("");
  });

  it("is per second for rates", () => {
    expect(unit("rate(sent_bytes_total[5m])")).toBe("bytes_per_second");
    expect(unit("irate(drops_total{a='}'}[1m])")).toBe("per_second");
    expect(unit("rate(paused_seconds_total[5m])")).toBe("ratio");
    expect(unit("increase(sent_bytes_total[1h])")).toBe("bytes");
    expect(unit("rate(busy_ratio[5m])")).toBeUndefined();
  });

  it("is kept by what sums up and chooses", () => {
    expect(unit("sum by (host, port) (rate(sent_bytes_total[5m]))")).toBe("bytes_per_second");
    expect(unit("sum(rate(sent_bytes_total[5m])) without (port)")).toBe("bytes_per_second");
    expect(unit("topk(3, max by (gpu) (clock_hertz))")).toBe("hertz");
    expect(unit("max_over_time(rate(drops_total[1m])[10m:30s])")).toBe("per_second");
    expect(unit("clock_hertz > 1e9")).toBe("hertz");
    expect(unit("clock_hertz and on (host) (busy_ratio > 0.5)")).toBe("hertz");
    expect(unit("# what\nclock_hertz # for")).toBe("hertz");
    expect(unit("SUM BY (host) (clock_hertz)")).toBe("hertz");
  });

  it("of a histogram is that of what was observed", () => {
    expect(unit("histogram_quantile(0.99, sum by (le) (rate(wait_seconds_bucket[5m])))")).toBe(
      "seconds",
    );
    expect(unit("rate(wait_seconds_count[5m])")).toBe("per_second");
    expect(unit("rate(wait_seconds_sum[5m])")).toBe("ratio");
    expect(unit("wait_seconds")).toBeUndefined();
  });

  it("is not known after arithmetic, counting or nonsense", () => {
    for (const query of [
      "sent_bytes_total * 8",
      "clock_hertz / clock_hertz",
      "count(clock_hertz)",
      "clock_hertz > bool 1",
      "time()",
      "42",
      "",
      "sum(",
      "clock_hertz)",
      "rate(sent_bytes_total[5m]) / on (host) group_left (x) busy_ratio",
      "unknown_metric",
      "((((",
      "by by by",
      '"text"',
    ])
      expect(unit(query), query).toBeUndefined();
  });

  it("is that of other exporters' names where their numbers are ours", () => {
    expect(unit("node_sent_bytes")).toBe("bytes");
    expect(unit("DCGM_CLOCK")).toBeUndefined();
  });

  it("takes no longer for a long query", () => {
    const deep = `${"(".repeat(500)}clock_hertz${")".repeat(500)}`;
    expect(unit(deep)).toBe("hertz");
    expect(unit(`${"(".repeat(1e5)}clock_hertz`)).toBeUndefined();
    expect(unit(`clock_hertz${" or clock_hertz".repeat(2000)}`)).toBe("hertz");
  });
});

describe("a number in its unit", () => {
  it("is written for people", () => {
    expect(formatOf("bytes_per_second")(1.25e9)).toBe("1.25 GB/s");
    expect(formatOf("seconds")(0.0012)).toBe("1.2 ms");
    expect(formatOf("ratio")(0.43)).toBe("43 %");
    expect(formatOf("celsius")(71)).toBe("71 °C");
    expect(formatOf(undefined)(1500)).toBe("1.5 k");
    expect(formatOf(undefined)(0.25)).toBe("0.25");
    expect(formatOf("per_second")(3)).toBe("3 /s");
    expect(formatOf("hertz")(Number.POSITIVE_INFINITY)).toBe("+Inf");
    expect(formatOf("hertz")(Number.NaN)).toBe("NaN");
  });

  it("has words", () => {
    expect(unitWords("bytes_per_second")).toBe("bytes per second");
    expect(unitWords(undefined)).toBe("");
  });
});
