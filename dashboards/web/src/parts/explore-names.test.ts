import { describe, expect, it } from "vitest";
import { distance, metricsOf, nearest, renamed, unknownIn, unknownWords } from "./explore-names";

describe("metrics of a query", () => {
  it("are no functions, labels, keywords or durations", () => {
    expect(
      metricsOf(
        'sum by (host, job) (rate(a_total{host="b", c=~"d"}[5m] offset 1h)) / on (host) group_left (rail) e_seconds > bool 3 or a_total',
      ),
    ).toEqual(["a_total", "e_seconds"]);
    expect(metricsOf("1 + inf")).toEqual([]);
    expect(metricsOf("a{")).toEqual(["a"]);
  });
});

describe("a metric that does not exist", () => {
  const stored = new Set(["fabric_gpu_temperature_celsius", "fabric_gpu_power_watts", "up"]);

  it("is likely one that is written nearly like it", () => {
    expect(nearest("fabric_gpu_temprature_celcius", stored)).toEqual([
      "fabric_gpu_temperature_celsius",
    ]);
    expect(nearest("something_else_entirely", stored)).toEqual([]);
  });

  it("may be ours and not sent by anything", () => {
    const ours = new Set(["fabric_nic_up"]);
    expect(unknownIn("fabric_nic_up + upp + up", stored, ours)).toEqual([
      { name: "fabric_nic_up", isOurs: true, near: [] },
      { name: "upp", isOurs: false, near: ["up"] },
    ]);
  });

  it("is the reason why a query gives nothing", () => {
    const unknown = unknownIn("fabric_nic_up + upp", stored, new Set(["fabric_nic_up"]));
    expect(unknownWords(unknown)).toBe(
      "Nothing has sent fabric_nic_up. There is no metric upp: see above.",
    );
    expect(unknownWords([])).toBe("");
  });

  it("is replaced as a whole word only", () => {
    expect(renamed("upp + upp_total + upp", "upp", "up")).toBe("up + upp_total + up");
  });

  it("is compared letter by letter, up to a bound", () => {
    expect(distance("kitten", "sitting", 5)).toBe(3);
    expect(distance("aaaaaaaa", "bbbbbbbb", 2)).toBe(3);
  });
});
