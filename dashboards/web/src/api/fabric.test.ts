import { beforeAll, describe, expect, test, vi } from "vitest";

let fabric: typeof import("./fabric");
let topology: typeof import("./topology");

beforeAll(async () => {
  // The client keeps its token there; a browser has it, Node has not.
  vi.stubGlobal("sessionStorage", { getItem: () => null });
  fabric = await import("./fabric");
  topology = await import("./topology");
});

const packed = (values: Float32Array | Uint8Array) => ({
  data: btoa(String.fromCharCode(...new Uint8Array(values.buffer))),
});

describe("the state of links", () => {
  test("is read as the service packs it; one direction is better than none", async () => {
    const floats = (...values: number[]) => packed(Float32Array.from(values));
    const answer = {
      from_ns: 1_000e9,
      step_ns: 20e9,
      frames: 2,
      links: ["a|b", "c|d"],
      a_to_b: floats(0.1, Number.NaN, 0.3, Number.NaN),
      b_to_a: floats(0.2, 0.5, 0.1, Number.NaN),
      errors: floats(0, 1, 2, 3),
      worst_errors: { ...packed(Uint8Array.from([255, 0, 0, 0])), kinds: ["symbol_errors"] },
      paused: floats(0, 0, 0, 1),
      paused_at_most: floats(1, Number.NaN, Number.NaN, Number.NaN),
      up: floats(1, 1, 0, Number.NaN),
    };
    const asked: string[] = [];
    vi.stubGlobal("fetch", async (url: string) => {
      asked.push(url);
      return Response.json(answer);
    });
    const question = { from: 1000, to: 1040, frames: 2, at: 1040 };
    const state = await fabric.askFabricState(question);
    expect(asked).toEqual(["/v1/fabric/state?from=1000.000&to=1040.000&frames=2&at=1040.000"]);
    expect(state.times).toEqual([1020, 1040]);
    expect([...state.utilisation].map((value) => Number(value.toFixed(2)))).toEqual([
      0.2,
      0.5,
      0.3,
      Number.NaN,
    ]);
    expect([...state.worstErrors]).toEqual([255, 0, 0, 0]);
    expect([...state.errors]).toEqual([0, 1, 2, 3]);
    expect([...state.pauseAtMost].slice(0, 2)).toEqual([1, Number.NaN]);
  });

  test("a port's name cannot leave its label", () => {
    const port = { host: 'a"} or up{x="', device: "mlx5_0", port: "1" };
    const query = fabric.flowQuestion(port, { ...port, host: "b" }, "60s");
    expect(query).toContain('host="a\\"} or up{x=\\""');
    expect(query.split(" or ").filter((part) => part.startsWith("8 * sum(rate("))).toHaveLength(4);
  });
});

test("a topology that has not changed is not read again", async () => {
  const asked: (string | null)[] = [];
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    const known = new Headers(init.headers).get("If-None-Match");
    asked.push(known);
    if (known === '"1"') return new Response(null, { status: 304 });
    return Response.json({ links: [] }, { headers: { ETag: '"1"' } });
  });
  const first = await topology.askTopology();
  expect(await topology.askTopology()).toBe(first);
  expect(await topology.askTopology(5)).not.toBe(first);
  expect(asked).toEqual([null, '"1"', null]);
});
