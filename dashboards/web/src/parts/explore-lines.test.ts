import { describe, expect, it } from "vitest";
import type { Series } from "../api/promql";
import {
  chartsOf,
  commonLabels,
  keyOf,
  LINES_MAX,
  labelOrder,
  nameOf,
  tellingLabels,
  wholeName,
} from "./explore-lines";

const series = (
  labels: Record<string, string>,
  values: number[],
  times = values.map((_, place) => 100 + place * 10),
): Series => ({ labels, times, values });

describe("names of lines", () => {
  it("leave out what all have in common", () => {
    const two = [
      series({ __name__: "up", cluster: "c", host: "a" }, [1]),
      series({ __name__: "up", cluster: "c", host: "b" }, [1]),
    ];
    expect(commonLabels(two)).toEqual({ __name__: "up", cluster: "c" });
    expect(nameOf(two[0]?.labels ?? {}, tellingLabels(two), "up")).toBe("host=a");
  });

  it("have as few labels as distinguish them", () => {
    const labels = (host: string, gpu: string, uuid: string, zone: string) =>
      series({ host, gpu, uuid, zone }, [1]);
    const four = [
      labels("a", "0", "u1", "z"),
      labels("a", "1", "u2", "z"),
      labels("b", "0", "u3", "z"),
      labels("b", "1", "u4", "z"),
    ];
    expect(tellingLabels(four)).toEqual(["host", "gpu"]);
    expect(tellingLabels(four.slice(0, 1))).toEqual([]);
    expect(tellingLabels([])).toEqual([]);
  });

  it("of a single series are whole, and of none the query", () => {
    expect(commonLabels([series({ host: "a" }, [1])])).toEqual({});
    expect(nameOf({ __name__: "up", host: 'a"b' }, [], "up")).toBe('up{host="a\\"b"}');
    expect(nameOf({}, [], "sum(up)")).toBe("sum(up)");
    expect(wholeName({ __name__: "up" })).toBe("up");
  });

  it("name a thing before its details", () => {
    expect(labelOrder(["zone", "port", "host", "__name__", "uuid"])).toEqual([
      "__name__",
      "host",
      "port",
      "uuid",
      "zone",
    ]);
  });

  it("have one key, however labels are ordered", () => {
    expect(keyOf("A", { b: "2", a: "1" })).toBe(keyOf("A", { a: "1", b: "2" }));
  });
});

describe("charts", () => {
  const answer = (place: number, unit: string | undefined, all: Series[]) => ({
    place,
    unit,
    query: `q${place}`,
    series: all,
  });

  it("keep gaps, also those that all have", () => {
    const [chart] = chartsOf(
      [answer(0, "bytes", [series({ host: "a" }, [1, 3], [100, 130])])],
      100,
      140,
      10,
    );
    expect(chart?.times).toEqual([100, 110, 120, 130, 140]);
    expect(chart?.lines[0]?.values).toEqual([1, null, null, 3, null]);
    expect(chart?.lines[0]).toMatchObject({ last: 3, least: 1, most: 3, mean: 2 });
  });

  it("are one for each unit, with letters where queries share one", () => {
    const charts = chartsOf(
      [
        answer(0, "bytes", [series({ host: "a" }, [1]), series({ host: "b" }, [2])]),
        answer(1, "seconds", [series({ host: "a" }, [1])]),
        answer(2, "bytes", [series({ host: "a" }, [5])]),
      ],
      100,
      100,
      10,
    );
    expect(charts.map((chart) => chart.unit)).toEqual(["bytes", "seconds"]);
    expect(charts[0]?.lines.map((line) => line.name)).toEqual([
      "A host=a",
      "A host=b",
      'C {host="a"}',
    ]);
    expect(charts[1]?.lines[0]?.name).toBe('{host="a"}');
  });

  it("draw the highest where there are too many, and count those that are missing", () => {
    const many = Array.from({ length: LINES_MAX + 30 }, (_, place) =>
      series({ host: String(place) }, [place]),
    );
    const [chart] = chartsOf([answer(0, undefined, many)], 100, 100, 10);
    expect(chart?.lines).toHaveLength(LINES_MAX);
    expect(chart?.leftOut).toBe(30);
    expect(chart?.lines[0]?.labels.host).toBe("30");
  });

  it("do not draw what is no number", () => {
    const [chart] = chartsOf(
      [answer(0, undefined, [series({}, [Number.NaN, Number.POSITIVE_INFINITY])])],
      100,
      110,
      10,
    );
    expect(chart?.lines[0]?.values).toEqual([null, null]);
    expect(chart?.lines[0]?.most).toBeNull();
  });
});
