import { describe, expect, it } from "vitest";
import type { Culprit, IncidentShort } from "../api/incidents";
import type { Job, VerdictNow } from "../api/jobs";
import {
  accusedRanks,
  baseOf,
  bytesWords,
  culpritWords,
  isAccused,
  isChanged,
  verdictWords,
} from "./job-words";

const job: Job = {
  id: "a",
  name: null,
  user: null,
  scheduler: null,
  cluster: null,
  state: "running",
  started_at: null,
  ended_at: null,
  ranks: 4,
  first_seen: "",
  last_seen: "",
};
const calm: VerdictNow = {
  verdicts: [],
  incidents: [],
  evaluated_at: null,
  is_fresh: true,
  well_since: null,
};
const incident = (id: string, culprit: Culprit, lost_seconds: number): IncidentShort =>
  ({ id, culprit, lost_seconds, summary: `${id} is bad.` }) as IncidentShort;

const span = { from: 1000, to: 2000 };

describe("a job's verdict", () => {
  it("does not praise a time in which the job did not run", () => {
    const over = { ...job, state: "ended", ended_at: "1970-01-01T00:10:00Z" };
    expect(verdictWords(over, calm, [], span).text).toBe("It had ended before this time.");
    const young = { ...job, started_at: "1970-01-01T01:00:00Z" };
    expect(verdictWords(young, calm, [], span).text).toBe("It had not started in this time.");
  });

  it("is what is wrong now, with its incident", () => {
    const verdict = { summary: "Rank 7 is late." } as VerdictNow["verdicts"][0];
    const now = { ...calm, verdicts: [verdict, verdict], incidents: ["i1", "i2"] };
    expect(verdictWords(job, now, [], span)).toEqual({
      tone: "bad",
      text: "Rank 7 is late.",
      incident: "i1",
      more: "and 1 more incident",
    });
  });

  it("is the costliest of the time that is looked at, when nothing is wrong now", () => {
    const within = [incident("small", {}, 1), incident("large", {}, 9)];
    expect(verdictWords(job, calm, within, span)).toEqual({
      tone: "warn",
      text: "In this time: large is bad.",
      incident: "large",
      more: "and 1 other",
    });
  });

  it("is not good while the service does not evaluate", () => {
    expect(verdictWords(job, { ...calm, is_fresh: false }, [], span).tone).toBe("warn");
    expect(
      verdictWords({ ...job, state: "ended" }, { ...calm, is_fresh: false }, [], span).tone,
    ).toBe("good");
    expect(verdictWords(job, calm, [], span).tone).toBe("good");
  });
});

describe("who is accused", () => {
  const rank = (number: number, host: string, gpu: string, device: string) => ({
    rank: number,
    host,
    gpu,
    device,
  });
  const ranks = [
    rank(0, "n0", "0", "mlx5_0"),
    rank(1, "n0", "1", "mlx5_1"),
    rank(2, "n1", "0", "mlx5_0"),
  ];

  it("is a rank by its number, in its own job only", () => {
    expect(isAccused(ranks[1] as never, { job: "a", rank: 1 }, "a")).toBe(true);
    expect(isAccused(ranks[1] as never, { job: "b", rank: 1, host: "n0" }, "a")).toBe(true);
    expect(isAccused(ranks[2] as never, { job: "b", rank: 2 }, "a")).toBe(false);
  });

  it("is the rank that runs on the GPU or sends through the NIC", () => {
    expect(accusedRanks(ranks, [incident("i", { host: "n0", device: "mlx5_1" }, 1)], "a")).toEqual([
      1,
    ]);
    expect(accusedRanks(ranks, [incident("i", { host: "n0", gpu: 0 }, 1)], "a")).toEqual([0]);
    expect(accusedRanks(ranks, [incident("i", { host: "n0" }, 1)], "a")).toEqual([0, 1]);
    expect(accusedRanks(ranks, [incident("i", { switch: "leaf" }, 1)], "a")).toEqual([]);
  });

  it("is called as the job's people know him", () => {
    expect(culpritWords({ rank: 7, host: "n1", gpu: 3 })).toBe("rank 7 on n1");
    expect(culpritWords({ host: "n4", device: "mlx5_0", switch: "leaf" })).toBe("n4 mlx5_0");
    expect(culpritWords({ host: "n4" })).toBe("n4");
    expect(culpritWords({ switch: "leaf", switch_port: "Ethernet4" })).toBe("leaf Ethernet4");
    expect(culpritWords({})).toBe("unknown");
  });

  it("lists the costliest first, each once", () => {
    const found = accusedRanks(
      ranks,
      [incident("i", { host: "n0" }, 1), incident("j", { job: "a", rank: 1 }, 5)],
      "a",
    );
    expect(found).toEqual([1, 0]);
  });
});

describe("numbers", () => {
  it("of bytes are powers of two, as collectives have them", () => {
    expect(bytesWords(6 * 2 ** 30)).toBe("6 GiB");
    expect(bytesWords(64)).toBe("64 B");
    expect(bytesWords(null)).toBe("–");
  });

  it("of readings go back to base units", () => {
    expect(baseOf(187, "Gb/s")).toEqual([187e9, "b/s"]);
    expect(baseOf(50, "°C")).toBeUndefined();
  });

  it("that changed by a fifth are worth a look", () => {
    expect(isChanged(1425, 1980)).toBe(true);
    expect(isChanged(1900, 1980)).toBe(false);
    expect(isChanged(0, 0)).toBe(false);
    expect(isChanged(5, null)).toBe(false);
  });
});
