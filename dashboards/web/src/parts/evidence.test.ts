import { describe, expect, it, vi } from "vitest";
import type { Explanation, JobExplained } from "../api/explain";
import type { Evidence } from "../api/incidents";

vi.stubGlobal("location", { hash: "" });
vi.stubGlobal("addEventListener", () => {});
vi.stubGlobal("sessionStorage", { getItem: () => null });

const series = await import("./evidence-series");

function evidence(metric: string, unit: string, labels: Record<string, string>): Evidence {
  return { metric, unit, labels, text: "", value: 2, baseline: 1, from_ns: 0, to_ns: 100e9 };
}

const GPU = { host: "n1", gpu: "3" };

describe("in PromQL", () => {
  it.each([
    [
      evidence("fabric_gpu_sm_clock_hertz", "hertz", GPU),
      'max by (host, gpu) (fabric_gpu_sm_clock_hertz{host="n1",gpu="3"})',
    ],
    [
      evidence("fabric_port_state", "", { host: "n1" }),
      'min by (host) (fabric_port_state{host="n1"})',
    ],
    [
      evidence("fabric_port_symbol_errors_total", "errors per second", { host: "n1" }),
      'sum by (host) (rate(fabric_port_symbol_errors_total{host="n1"}[1m]))',
    ],
    [
      evidence("fabric_port_link_downed_total", "changes", { host: "n1" }),
      'sum by (host) (increase(fabric_port_link_downed_total{host="n1"}[1m]))',
    ],
    [
      evidence("fabric_port_receive_bytes_total", "ratio", { host: "n1" }),
      'sum by (host) (rate(fabric_port_receive_bytes_total{host="n1"}[1m])) * 8 / max by (host) (fabric_port_rate_bits_per_second{host="n1"})',
    ],
    [
      evidence("fabric_host_cpu_seconds_total", "ratio", { host: "n1", mode: "steal" }),
      'sum by (host, mode) (rate(fabric_host_cpu_seconds_total{host="n1",mode="steal"}[1m])) / on (host) group_left () sum by (host) (rate(fabric_host_cpu_seconds_total{host="n1"}[1m]))',
    ],
    [
      evidence("step_transfer_share", "ratio", { job: "train" }),
      'max by (job) (fabric_job_network_share_ratio{job="train"})',
    ],
  ])("%o", (one, query) => {
    expect(series.questionOf(one)?.query).toBe(query);
  });

  it("evidence from collectives is no series, nor is what is no name", () => {
    expect(series.questionOf(evidence("rank_gap", "seconds", {}))).toBeUndefined();
    expect(series.questionOf(evidence('x{a="b"}', "", {}))).toBeUndefined();
  });

  it("names from outside stay inside their quotes", () => {
    const query = series.questionOf(
      evidence("fabric_host_load1", "", { host: 'a"} or x{b="' }),
    )?.query;
    expect(query).toBe('max by (host) (fabric_host_load1{host="a\\"} or x{b=\\""})');
  });

  it("peers are all others of the same mode; the worst is where the culprit's fault lies", () => {
    const question = series.questionOf(
      evidence("fabric_host_cpu_seconds_total", "ratio", { host: "n1", mode: "steal" }),
    );
    expect(question?.all).toContain('{mode="steal"}');
    expect(question && series.against(question, false).worst).toMatch(/^max\(/);
    expect(question && series.against(question, true).worst).toMatch(/^min\(/);
  });

  it("a job that stands is drawn by the collectives that it finishes, and has no peers", () => {
    const question = series.questionOf(
      evidence("pending_operations", "operations", { job: "train" }),
    );
    expect(question?.query).toBe(
      'sum by (job) (rate(fabric_communicator_operations_total{job="train"}[1m]))',
    );
    expect(question && Object.keys(series.against(question, false))).toEqual(["culprit"]);
  });

  it("why a clock is low is drawn by its reasons, the culprit's alone: masks have no median", () => {
    const one = evidence("fabric_gpu_clock_event_reasons", "bits", GPU);
    const question = series.questionOf(one);
    expect(question && Object.keys(series.against(question, false))).toEqual(["culprit"]);
    const found = [{ labels: { what: "culprit" }, times: [1, 2, 3], values: [0, 0x4, 0x24] }];
    const drawn = question && series.linesOf(found, one, question, { from: 1, to: 3 });
    expect(drawn).toMatchObject({ lines: [{ role: "culprit", values: [0, 1, 2] }] });
    expect(drawn?.kind === "time" && drawn.marks?.map((mark) => mark.words)).toEqual([
      "nothing holds it",
      "at its power limit",
      "clock held down: heat",
    ]);
  });

  it("lines lie on one axis, with gaps", () => {
    const one = evidence("fabric_gpu_sm_clock_hertz", "hertz", GPU);
    const question = series.questionOf(one);
    const drawn =
      question &&
      series.linesOf(
        [
          { labels: { what: "culprit" }, times: [1, 3], values: [10, 30] },
          { labels: { what: "peers" }, times: [1, 2], values: [5, 6] },
        ],
        one,
        question,
        { from: 0, to: 3 },
      );
    expect(drawn).toMatchObject({
      times: [0, 1, 2, 3],
      lines: [
        { role: "culprit", label: "n1 GPU 3", values: [null, 10, null, 30] },
        { role: "peers", values: [null, 5, 6, null] },
      ],
    });
  });
});

function kind(communicator: string, transfers: readonly number[], lastIn: readonly number[]) {
  return {
    communicator,
    operation: "all_reduce",
    size_bytes: 64,
    ranks: 2,
    before: { operations: 3, transfer_ns: 1e9 },
    during: { operations: 3, transfer_ns: (transfers[0] ?? 0) * 1e9 },
    past_transfer_ns: 0.5e9,
    end_ns: transfers.map((_, place) => (place + 1) * 10e9),
    transfer_ns: transfers.map((seconds) => seconds * 1e9),
    last_in: lastIn,
    least_inside: lastIn,
  };
}

const JOB: JobExplained = {
  job: "train",
  kinds: [
    kind("a", [2, 2, 2, 9], [0, 0, 1, 1]),
    { ...kind("b", [1, 1, 1], [0, 1, 1]), past_transfer_ns: null },
  ],
  ranks: [
    { communicator: "a", rank: 0, job_rank: 0, host: "n0" },
    { communicator: "a", rank: 1, job_rank: 1, host: "n1" },
    { communicator: "b", rank: 0, job_rank: 1, host: "n1" },
    { communicator: "b", rank: 1, job_rank: 2, host: "n2" },
  ],
  own_times: {
    ranks: [0, 1],
    end_ns: [10e9, 20e9],
    outside_ns: [
      [1e9, 1e9],
      [3e9, null],
    ],
    peers_ns: [
      [1e9, 1e9],
      [1e9, 2e9],
    ],
  },
  ladders: [
    {
      communicator: "a",
      size_bytes: 64,
      operations_before: 0,
      places: [
        { rank: 0, job_rank: 0, host: "n0", during_ns: -2e9, change_ns: null },
        { rank: 1, job_rank: 1, host: "n1", during_ns: 1e9, change_ns: null },
      ],
    },
  ],
};
const WINDOW: Explanation = {
  from_ns: 0,
  to_ns: 100e9,
  jobs: [JOB],
  grid: { start_ns: 0, step_ns: 5e9, cells: 2 },
  things: [
    {
      kind: "port",
      name: "n1/mlx5_0/1",
      readings: [
        {
          metric: "fabric_port_transmit_bytes_total",
          labels: { host: "n1", device: "mlx5_0", port: "1" },
          query: "",
          is_rate: true,
          values: [1, null],
        },
      ],
    },
  ],
  peers: [{ kind: "port", metric: "fabric_port_transmit_bytes_total", median: [2, 2] }],
  left_out: [],
};

describe("from the window of detectors", () => {
  const draw = (metric: string, labels: Record<string, string>, to_ns = 100e9) =>
    series.fromExplanation({ ...evidence(metric, "seconds", labels), to_ns }, WINDOW, {
      host: "n1",
    });

  it("a communicator's transfers stand against others of the same kind", () => {
    const labels = { job: "train", communicator: "a", operation: "all_reduce", size_bytes: "64" };
    expect(draw("collective_transfer", labels)).toMatchObject({
      kind: "time",
      times: [10, 20, 30, 40],
      lines: [
        { role: "usual", values: [0.5, 0.5, 0.5, 0.5] },
        { role: "peers", values: [1, 1, 1, 1] },
        { role: "culprit", values: [2, 2, 2, 9] },
      ],
    });
    expect(draw("collective_transfer", { ...labels, communicator: "z" })).toBeUndefined();
  });

  it("a rank's own time stands against its peers'", () => {
    expect(draw("rank_gap", { job: "train", rank: "1", host: "n1" })).toMatchObject({
      lines: [
        { role: "peers", values: [1, 2] },
        { role: "culprit", label: "rank 1", values: [3, null] },
      ],
    });
  });

  it("shares of ranks are those of the evidence's stretch", () => {
    // Until 30 s: rank 1 was last in one of three of `a` and in one of three of `b`.
    expect(draw("rank_last_in", { job: "train", rank: "1", host: "n1" }, 30e9)).toMatchObject({
      kind: "bars",
      usual: 1,
      bars: [
        { label: "rank 0, n0", value: 2 / 3, isCulprit: false },
        { label: "rank 1, n1", value: 2 / 6, isCulprit: true },
        { label: "rank 2, n2", value: 2 / 3, isCulprit: false },
      ],
    });
  });

  it("exits around a ring begin with the first to leave", () => {
    expect(draw("exit_ladder", { job: "train", communicator: "a" })).toMatchObject({
      bars: [
        { value: 0, isCulprit: false },
        { value: 3, isCulprit: true },
      ],
    });
  });

  it("communicators vote by how much longer they take", () => {
    expect(draw("communicator_vote", { job: "train" })).toMatchObject({
      bars: [
        // By the hour before: right before, another trouble had made it half as slow already.
        { value: 4, isCulprit: true },
        { value: 1, isCulprit: false },
      ],
    });
  });

  it("a smooth NIC is drawn with the median of all", () => {
    expect(draw("nic_smoothness", { host: "n1", device: "mlx5_0" })).toMatchObject({
      times: [5, 10],
      lines: [
        { role: "peers", values: [2, 2] },
        { role: "culprit", values: [1, null] },
      ],
    });
  });

  it("what cannot be drawn has no picture", () => {
    expect(draw("last_read", GPU)).toBeUndefined();
    expect(series.isExplained(evidence("last_read", "seconds", GPU))).toBe(false);
    expect(series.isExplained(evidence("exit_ladder", "seconds", {}))).toBe(true);
  });
});

it("of a thousand ranks the highest and the culprit are drawn, and the others counted", () => {
  const ranks = Array.from({ length: 1000 }, (_, rank) => ({
    communicator: "a",
    rank,
    job_rank: rank,
    host: `n${rank}`,
  }));
  const job = { ...JOB, ranks, kinds: [kind("a", [1, 1], [5, 6])] };
  const drawn = series.fromExplanation(
    evidence("rank_last_in", "ratio", { job: "train", rank: "999", host: "n999" }),
    { ...WINDOW, jobs: [job] },
    {},
  );
  expect(drawn).toMatchObject({ kind: "bars" });
  if (drawn?.kind !== "bars") return;
  expect(drawn.bars.length).toBe(64);
  expect(drawn.bars.at(-1)).toMatchObject({ label: "rank 999, n999", isCulprit: true });
  expect(drawn.note).toContain("of 1,000 ranks");
});
