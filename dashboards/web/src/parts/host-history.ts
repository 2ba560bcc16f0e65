/** A host's states and incidents over time, as stretches on a line. Pure. Times are unix seconds. */
import type { HealthState, HealthTurn } from "../api/hosts";
import type { IncidentShort } from "../api/incidents";
import type { Look } from "./host-words";

export interface Stretch {
  readonly look: Look;
  readonly from: number;
  readonly to: number;
  readonly why: string;
  /** Before the oldest turn that is kept: the service may not have evaluated then. */
  readonly isPresumed: boolean;
}

const NS = 1e9;
const SILENT = /(^|; )silent since /;

function lookAfter(turn: HealthTurn): Look {
  return turn.state === "suspect" && SILENT.test(turn.why) ? "silent" : turn.state;
}

/**
 * In which state a thing was when, from its turns in any order. `current`: its state now, where no
 * turn is known. Before the oldest turn that is kept it was that turn's previous state.
 */
export function stretchesOf(
  turns: readonly HealthTurn[],
  current: HealthState,
  from: number,
  to: number,
): Stretch[] {
  const ordered = [...turns].sort((a, b) => a.time_ns - b.time_ns);
  const found: Stretch[] = [];
  let look: Look = ordered[0]?.was ?? current;
  let [start, why] = [Number.NEGATIVE_INFINITY, ""];
  const close = (end: number) => {
    const [left, right] = [Math.max(from, start), Math.min(to, end)];
    const isPresumed = start === Number.NEGATIVE_INFINITY;
    if (right > left) found.push({ look, from: left, to: right, why, isPresumed });
  };
  for (const turn of ordered) {
    close(turn.time_ns / NS);
    [look, start, why] = [lookAfter(turn), turn.time_ns / NS, turn.why];
  }
  close(Number.POSITIVE_INFINITY);
  return found;
}

/** Parts of a host that have turned, with their turns: the latest first. */
export function partsOf(history: readonly HealthTurn[]): ReadonlyMap<string, HealthTurn[]> {
  const found = new Map<string, HealthTurn[]>();
  for (const turn of history) {
    if (turn.kind === "host") continue;
    const kind = { gpu: "GPU", device: "NIC", link: "link", switch: "switch" }[turn.kind];
    const name = `${kind} ${turn.name.split("/").slice(1).join("/")}`;
    found.set(name, [...(found.get(name) ?? []), turn]);
  }
  return found;
}

export interface Bar {
  readonly incident: IncidentShort;
  readonly from: number;
  readonly to: number;
  /** From 0: bars of one lane do not overlap. */
  readonly lane: number;
}

/** Incidents within the time, each on the first lane where there is room. */
export function barsOf(incidents: readonly IncidentShort[], from: number, to: number): Bar[] {
  const ends: number[] = [];
  return [...incidents]
    .sort((a, b) => a.since_ns - b.since_ns)
    .map((incident) => ({
      incident,
      from: Math.max(from, incident.since_ns / NS),
      to: Math.min(to, endOf(incident)),
    }))
    .filter((bar) => bar.to >= bar.from)
    .map((bar) => {
      const room = ends.findIndex((end) => end <= bar.from);
      const lane = room < 0 ? ends.length : room;
      ends[lane] = bar.to;
      return { ...bar, lane };
    });
}

function endOf(incident: IncidentShort): number {
  if (incident.state === "open") return Number.POSITIVE_INFINITY;
  return (incident.until_ns ?? incident.last_seen_ns) / NS;
}

/** `0-3, 6, 8-9` of rank numbers. */
export function spans(numbers: readonly number[]): string {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const found: [number, number][] = [];
  for (const number of sorted) {
    const last = found.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(", ");
}
