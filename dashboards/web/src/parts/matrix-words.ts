/** What a matrix shows, in words; and who of an incident stands on its axes. Pure. */
import type { IncidentShort } from "../api/incidents";
import type { Balance, By, Cell, RankPlace, Ways } from "../api/matrix";
import { count, digits, percent, si } from "../format";
import { type Grid, numberOf, type Quantity, scaleOf, telling } from "./matrix-grid";

export const BY_WORDS: Readonly<Record<By, { one: string; many: string }>> = {
  host: { one: "host", many: "Hosts" },
  nic: { one: "NIC", many: "NICs" },
  rank: { one: "rank", many: "Ranks" },
  gpu: { one: "GPU", many: "GPUs" },
  rail: { one: "rail", many: "Rails" },
};

/** `rank 7`, `node0001`, `node0001 GPU 3`: a name of an axis where it stands alone. */
export function called(by: By, name: string): string {
  if (by === "rank" || by === "rail") return `${by} ${name}`;
  if (by === "gpu") return name.replace("/", " GPU ");
  return by === "nic" ? name.replace("/", " ") : name;
}

export function pairCalled(by: By, cell: Pick<Cell, "source" | "target">): string {
  return `${called(by, cell.source)} → ${called(by, cell.target)}`;
}

/** Closer than this to the others is the same to a person. */
const ALIKE = 1.1;
/** A pair below so much of what others do is called slow. */
const SLOW = 0.75;

/** The point of the drawing in one or two sentences. */
export function headline(grid: Grid, by: By, quantity: Quantity): string {
  const cells = telling(grid).filter((cell) => Number.isFinite(numberOf(cell, quantity)));
  const where = grid.isNetwork ? "between hosts" : "within hosts";
  if (!cells.length)
    return quantity === "speed" ? "No record times these transfers." : "Nothing was sent.";
  return quantity === "bytes"
    ? bytesLine(grid, by, cells, where)
    : speedLine(by, cells, grid.isNetwork);
}

function bytesLine(grid: Grid, by: By, cells: readonly Cell[], where: string): string {
  const { median, most } = scaleOf(cells.map((cell) => cell.bytes));
  const hottest = cells.at(-1);
  const pairs =
    !hottest || most / median < ALIKE
      ? `Even: each of ${count(cells.length, "pair")} ${where} carries about ${si(median, "B")}.`
      : `${sentence(by, pairCalled(by, hottest))} carries the most: ${si(most, "B")}, ${times(most / median)} the median pair.`;
  return [pairs, outstanding(grid, by, "sent"), outstanding(grid, by, "received")]
    .filter(Boolean)
    .join(" ");
}

/** Who sends or receives far more than the others. */
function outstanding(grid: Grid, by: By, which: "sent" | "received"): string {
  const values = [...grid[which]].filter((value) => value > 0);
  const { median, most } = scaleOf(values);
  if (values.length < 3 || !(most / median >= ALIKE)) return "";
  const name = grid.names[grid[which].indexOf(most)] ?? "";
  const verb = which === "sent" ? "sends" : "receives";
  return `${sentence(by, called(by, name))} ${verb} ${times(most / median)} the median.`;
}

function speedLine(by: By, cells: readonly Cell[], isNetwork: boolean): string {
  const speeds = cells.map((cell) => numberOf(cell, "speed")).sort((a, b) => a - b);
  const least = speeds[0] ?? Number.NaN;
  // What pairs can do. The median would be a slow one where one of two rails is.
  const usual = speeds[Math.floor(speeds.length * 0.75)] ?? Number.NaN;
  const slowest = cells.find((cell) => numberOf(cell, "speed") === least);
  if (!slowest) return "";
  if (usual / least < ALIKE)
    return `Even: while transferring, each of ${count(cells.length, "pair")} does about ${si(usual, "B/s")}.`;
  const slow = cells.filter((cell) => numberOf(cell, "speed") < SLOW * usual);
  const first = `Slowest: ${pairCalled(by, slowest)}, ${si(least, "B/s")} while transferring; others do ${si(usual, "B/s")}.`;
  return [first, isNetwork ? commonEnd(by, slow, cells.length) : ""].filter(Boolean).join(" ");
}

/** One pair is a link, one row a sender, one column a receiver; one device at all hosts is a rail. */
export function commonEnd(by: By, slow: readonly Cell[], pairs: number): string {
  const [one] = slow;
  if (!one) return "";
  if (slow.length === 1) return "It is the only slow pair.";
  if (slow.every((cell) => cell.source === one.source))
    return `All ${slow.length} slow pairs are sent by ${called(by, one.source)}.`;
  if (slow.every((cell) => cell.target === one.target))
    return `All ${slow.length} slow pairs are received by ${called(by, one.target)}.`;
  const device = one.source.split("/")[1];
  const isDevice = (name: string) => name.split("/")[1] === device;
  if (by === "nic" && slow.every((cell) => isDevice(cell.source) && isDevice(cell.target)))
    return `All ${slow.length} slow pairs are between NICs ${device}: a rail.`;
  return `${slow.length} of ${count(pairs, "pair")} are slow, with no end in common.`;
}

function times(ratio: number): string {
  return `${digits(Number(ratio.toPrecision(3)))} ×`;
}

/** At the beginning of a sentence: our own words grow, names of hosts stay as they are. */
function sentence(by: By, text: string): string {
  return by === "rank" || by === "rail" ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}

/** How even something is. */
export function evenness(balance: Balance): string {
  const over = (balance.highest_by_mean - 1) * 100;
  if (over < 1) return "even";
  return `highest ${digits(Math.round(over * 10) / 10)} % above the mean`;
}

export const ASSUMPTION_WORDS: Readonly<Record<string, string>> = {
  algorithm_by_size:
    "No record names the algorithm: all-reduces below 4 MiB are taken for trees, others for rings.",
  algorithm_by_counters:
    "No record names the algorithm: tree or ring was chosen by which fits the NICs' counters.",
  ring_order: "No debug line shows how communicators are wired: ranks in order are the ring.",
  ring_for_tree: "A tree with unknown edges was taken for a ring.",
  not_modelled:
    "NCCL chose an algorithm without a model here (NVLS tree, PAT), or switches may add up: those bytes are not placed.",
  reduced_in_switches:
    "Switches add up (CollNet, NVLS): each host hands the message up once, and to no other rank.",
  root_zero: "Rank 0 is the root of broadcasts, reduces, gathers and scatters.",
  equal_parts: "All-to-alls give everyone the same. Experts do not; their counts are not recorded.",
  both_ways: "A fused send and receive does not show which rank sent: half is counted each way.",
};

/** The model is right where this much of what NICs counted is explained; headers are the rest. */
export const CHECK_GOOD: readonly [number, number] = [0.95, 1.005];

export function checkWords(ratio: number): string {
  if (ratio < CHECK_GOOD[0])
    return `Counters saw more: records are missing, or something else (${percent(1 - ratio)}) uses these NICs.`;
  if (ratio > CHECK_GOOD[1])
    return "The model has more than the NICs counted: an assumption is wrong, or readings are missing.";
  return "The model agrees with what the NICs counted; the rest is headers.";
}

// --- incidents on the axes ----------------------------------------------------------------------

/** Incidents whose trouble lay, at least partly, within a time. */
export function during(
  incidents: readonly IncidentShort[],
  fromNs: number,
  toNs: number,
): IncidentShort[] {
  return incidents.filter(
    (one) => one.since_ns < toNs && (one.state === "open" || (one.until_ns ?? toNs) > fromNs),
  );
}

/** The names of an axis that an incident's culprit stands for. A host stands for all that is in it. */
export function accused(
  incident: IncidentShort,
  by: By,
  names: readonly string[],
  ranks: readonly RankPlace[],
  job: string,
): string[] {
  const { culprit } = incident;
  const isHis = (place: RankPlace) =>
    culprit.job === job && culprit.rank !== undefined
      ? place.rank === culprit.rank
      : place.host === culprit.host &&
        (culprit.device === undefined || place.device === culprit.device) &&
        (culprit.gpu === undefined || place.gpu === String(culprit.gpu));
  const known = new Set(names);
  const found = new Set<string>();
  if (by === "host" && culprit.host) found.add(culprit.host);
  if (by === "nic" && culprit.host && culprit.device)
    found.add(`${culprit.host}/${culprit.device}`);
  if (by === "rank" || by === "gpu" || (by === "nic" && !culprit.device))
    for (const place of ranks) if (isHis(place)) found.add(nameOf(place, by));
  return [...found].filter((name) => known.has(name));
}

/** What a rank's place is called on an axis; empty where it is not known. */
export function nameOf(place: RankPlace, by: By): string {
  if (by === "rank") return String(place.rank);
  if (!place.host) return "";
  if (by === "host") return place.host;
  if (by === "gpu") return place.gpu === null ? "" : `${place.host}/${place.gpu}`;
  return by === "nic" && place.device ? `${place.host}/${place.device}` : "";
}

/** Everybody who could stand on an axis. */
export function everybody(
  by: By,
  ranks: readonly RankPlace[],
  balances: readonly Balance[],
): string[] {
  const shares = balances.find((one) => one.over === by)?.shares ?? [];
  return [...ranks.map((place) => nameOf(place, by)), ...shares.map((one) => one.name)].filter(
    Boolean,
  );
}

/** The end of a pair as `/v1/paths` is asked for it: a NIC, or a host; undefined where it has no place. */
export function endpoint(by: By, name: string, ranks: readonly RankPlace[]): string | undefined {
  if (by === "host" || by === "nic") return name;
  const place = ranks.find((one) => nameOf(one, by) === name);
  if (by === "rail" || !place?.host) return undefined;
  return place.device ? `${place.host}/${place.device}` : place.host;
}

// --- ways ---------------------------------------------------------------------------------------

export interface Stop {
  /** As the fabric view is asked to show it. */
  readonly name: string;
  readonly label: string;
}

/** Places one after the other on the ways of a pair, with all that equal ways go through side by side. */
export function stopsOf(ways: Ways): Stop[][] {
  const length = ways.paths[0]?.length ?? 0;
  return Array.from({ length: length + 1 }, (_, place) => {
    const ports = ways.paths.map((path) =>
      place < length ? path[place]?.source : path[length - 1]?.target,
    );
    const stops = ports.filter((port) => port !== undefined).map(stopOf);
    return [...new Map(stops.map((stop) => [stop.label, stop])).values()];
  });
}

function stopOf(port: string): Stop {
  const [host = "", device = "", ...rest] = port.split("/");
  if (host === device) return { name: host, label: host };
  return { name: `${host}/${device}/${rest.join("/")}`, label: `${host} ${device}` };
}

/** Whether an incident's culprit is a port or switch that these ways go through. */
export function isOnWay(incident: IncidentShort, pairs: readonly Ways[]): boolean {
  const { host, device, switch: box, switch_port: boxPort } = incident.culprit;
  const ports = new Set<string>();
  for (const pair of pairs)
    for (const path of pair.paths)
      for (const hop of path) {
        ports.add(hop.source);
        ports.add(hop.target);
      }
  for (const port of ports) {
    const [at = "", on = "", ...rest] = port.split("/");
    if (host && device && at === host && on === device) return true;
    if (box && at === box && (!boxPort || rest.join("/") === boxPort)) return true;
  }
  return false;
}
