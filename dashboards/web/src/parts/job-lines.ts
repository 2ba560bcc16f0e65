/** What was measured of a job, as lines and strips of its timeline. Pure. */
import type { Asked, Trouble } from "../api/job-series";
import type { Bucket } from "../api/jobs";
import type { Series } from "../api/promql";
import type { Line } from "../ui/plot";
import { gravestOf } from "./clock-reasons";
import { type Bar, toBars } from "./timeline";
import type { Segment } from "./timeline-draw";
import type { LinesData } from "./timeline-tracks";

const NS = 1e9;

/** Steps as bars of compute, waiting and network, in seconds. */
export function stepBars(buckets: readonly Bucket[]): Bar[] {
  return toBars(
    buckets.map((one) => ({
      from: one.start_ns / NS,
      to: one.end_ns / NS,
      step: one.step_ns === null ? null : one.step_ns / NS,
      parts: [one.compute_ns, one.wait_ns, one.network_ns].map((part) => (part ?? 0) / NS),
    })),
  );
}

/** Unix seconds at which the last step ended, to the precision of the buckets. */
export const lastStepEnd = (bars: readonly Bar[]): number | undefined => bars.at(-1)?.to;

export function timesOf({ from, step, count }: Asked): number[] {
  return Array.from({ length: count }, (_, place) => from + place * step);
}

/** A series' values at each moment that was asked for; null where it has none. */
export function onGrid(asked: Asked, series: Series | undefined): (number | null)[] {
  const values: (number | null)[] = new Array(asked.count).fill(null);
  series?.times.forEach((time, place) => {
    const value = series.values[place];
    const at = Math.round((time - asked.from) / asked.step);
    if (value !== undefined && Number.isFinite(value) && at >= 0 && at < asked.count)
      values[at] = value;
  });
  return values;
}

const withWhat = (asked: Asked, what: string) =>
  asked.series.find((one) => one.labels.what === what);

/** One rank's reading before the others': `name own`, `name most` and `name median` of the answer. */
export function comparedLines(asked: Asked, name: string, own: string, others: string): LinesData {
  const lines: Line[] = [];
  const add = (what: string, label: string, look: Omit<Line, "label" | "values">) => {
    const found = withWhat(asked, `${name} ${what}`);
    if (found) lines.push({ label, values: onGrid(asked, found), ...look });
  };
  add("own", own, { colour: "s1", width: 2 });
  add("median", `median of ${others}`, { colour: "soft", isDashed: true });
  add("most", `most of ${others}`, { colour: "s2", width: 1 });
  return { times: timesOf(asked), lines };
}

/** The collectives that take most of the time: their slowest group, their median group, their skew. */
export function collectiveLines(asked: Asked): { name: string; data: LinesData } | undefined {
  const heavy = heaviest(asked);
  if (!heavy) return undefined;
  const { operation = "", size = "" } = heavy.labels;
  const same = asked.series.filter(
    ({ labels }) => labels.operation === operation && labels.size === size,
  );
  const lines: Line[] = [];
  for (const [what, label, look] of COLLECTIVE_LOOKS) {
    const found = same.find(({ labels }) => labels.what === what);
    if (found) lines.push({ label, values: onGrid(asked, found), ...look });
  }
  return {
    name: `${operation} ${SIZES[size] ?? `up to ${size}`}`,
    data: { times: timesOf(asked), lines },
  };
}

const COLLECTIVE_LOOKS: readonly [string, string, Omit<Line, "label" | "values">][] = [
  ["slowest", "transfer, slowest group", { colour: "transfer", width: 2 }],
  ["median", "transfer, median group", { colour: "soft", isDashed: true }],
  ["skew", "entry skew, largest", { colour: "wait", width: 1.4 }],
];
/** The service's class for the largest has no upper end. */
const SIZES: Readonly<Record<string, string>> = { more: "of the largest size", "": "" };

function heaviest(asked: Asked): Series | undefined {
  let best: Series | undefined;
  let most = -1;
  for (const series of asked.series) {
    if (series.labels.what !== "slowest") continue;
    const sum = series.values.reduce((all, value) => all + value, 0);
    if (sum > most) [best, most] = [series, sum];
  }
  return best;
}

/** Where the service made no series of collectives: medians over all of them, small and large. */
export function bucketLines(buckets: readonly Bucket[]): LinesData {
  const seconds = (value: number | null) => (value === null ? null : value / NS);
  return {
    times: buckets.map((one) => (one.start_ns + one.end_ns) / 2 / NS),
    lines: [
      {
        label: "transfer, median",
        values: buckets.map((one) => seconds(one.transfer_ns)),
        colour: "transfer",
      },
      {
        label: "entry skew, median",
        values: buckets.map((one) => seconds(one.skew_ns)),
        colour: "wait",
      },
    ],
  };
}

/** `node3 mlx5_0`; a switch is its own device. */
export function portName({ host = "", device = "", port = "" }: Series["labels"]): string {
  const named = device === host ? [host, port] : [host, device, port === "1" ? "" : port];
  return named.filter(Boolean).join(" ");
}

const COLOURS = ["s4", "s7", "s6", "s5"];

/** The ports in trouble, worst first; empty if none is. */
export function troubleLines(asked: Asked, most: number): LinesData {
  const peak = (series: Series) => series.values.reduce((all, value) => Math.max(all, value), 0);
  const worst = [...asked.series].sort((a, b) => peak(b) - peak(a)).slice(0, most);
  return {
    times: timesOf(asked),
    lines: worst.map((series, place) => ({
      label: portName(series.labels),
      // They are the worst of each moment: where one is not among them it has little or nothing.
      values: onGrid(asked, series),
      colour: COLOURS[place % COLOURS.length] ?? "ink",
    })),
  };
}

export const TROUBLE_WORDS: Readonly<
  Record<Trouble, { title: string; hint: string; quiet: string; unit: "share" | "a second" }>
> = {
  pausing: {
    title: "Makes others pause",
    hint: "share of time; the root of a pause storm sends pause and gets none",
    quiet: "no pause sent",
    unit: "share",
  },
  paused: {
    title: "Paused",
    hint: "share of time in which the NIC might not send",
    quiet: "no NIC paused",
    unit: "share",
  },
  ecn: {
    title: "Congestion marks received",
    hint: "packets a second that a switch queue has marked (ECN)",
    quiet: "no congestion marks",
    unit: "a second",
  },
  resent: {
    title: "Sent again",
    hint: "packets a second that were lost or late on the way",
    quiet: "nothing sent again",
    unit: "a second",
  },
  errors: {
    title: "Damaged or dropped",
    hint: "symbols or packets a second, at NICs and at the switch ports they hang on",
    quiet: "no errors",
    unit: "a second",
  },
};

/** The clock's reasons over time, the gravest of each moment; full clock is no segment. */
export function reasonSegments(asked: Asked): Segment[] {
  const values = onGrid(asked, withWhat(asked, "reasons"));
  const segments: { from: number; to: number; label: string; tone: string; isStrong: boolean }[] =
    [];
  values.forEach((value, place) => {
    const reason = gravestOf(value);
    if (!reason) return;
    const { words: label, isStrong } = reason;
    const from = asked.from + place * asked.step;
    const last = segments.at(-1);
    if (last?.label === label && last.to === from) last.to = from + asked.step;
    else
      segments.push({
        from,
        to: from + asked.step,
        label,
        tone: isStrong ? "bad" : "compute",
        isStrong,
      });
  });
  return segments;
}

export const hasReasons = (asked: Asked): boolean => withWhat(asked, "reasons") !== undefined;
