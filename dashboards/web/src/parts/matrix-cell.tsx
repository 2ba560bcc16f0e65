/** One pair of a matrix: how much, how fast, how it is known, and which way it goes. */
import type { ComponentChildren } from "preact";
import { type IncidentShort, named } from "../api/incidents";
import type { By, Cell, Matrix, RankPlace, Ways } from "../api/matrix";
import { count, digits, percent, si } from "../format";
import { href, type Query } from "../route";
import { Badge } from "../ui/panel";
import type { Marker } from "./matrix-draw";
import type { Grid } from "./matrix-grid";
import { called, nameOf, stopsOf } from "./matrix-words";

/** Where an end of the pair is: a link to its host. */
function End(props: {
  by: By;
  name: string;
  ranks: readonly RankPlace[];
  accusers: readonly IncidentShort[];
}) {
  const { by, name } = props;
  const places = props.ranks.filter((place) => nameOf(place, by) === name);
  const [first] = places;
  const host =
    by === "host" ? name : (first?.host ?? (by === "rail" ? undefined : name.split("/")[0]));
  const details: string[] = [];
  if (by === "rank" && first?.gpu) details.push(`GPU ${first.gpu}`);
  if ((by === "rank" || by === "gpu") && first?.device) details.push(first.device);
  if (by !== "rank" && places.length) details.push(rankList(places));
  return (
    <dd>
      <b>{called(by, name)}</b>{" "}
      {host && host !== name && <a href={href(["hosts", host])}>{host}</a>}
      {host === name && <a href={href(["hosts", host])}>host</a>}{" "}
      <span class="soft">{details.join(", ")}</span>
      {props.accusers.map((incident) => (
        <a key={incident.id} class="badge bad" href={href(["incident", incident.id])}>
          {incident.cause.replaceAll("_", " ")}
        </a>
      ))}
    </dd>
  );
}

const RANKS_NAMED = 8;

function rankList(places: readonly RankPlace[]): string {
  const shown = places.slice(0, RANKS_NAMED).map((place) => place.rank);
  const rest = places.length - shown.length;
  const noun = places.length === 1 ? "rank" : "ranks";
  return `${noun} ${shown.join(", ")}${rest ? ` and ${rest} more` : ""}`;
}

export interface CellProps {
  readonly matrix: Matrix;
  readonly grid: Grid;
  readonly at: Marker;
  readonly ranks: readonly RankPlace[];
  /** Incidents by the name that they accuse. */
  readonly accusers: ReadonlyMap<string, readonly IncidentShort[]>;
  /** The way between the ends, or why it is not known. */
  readonly children: ComponentChildren;
}

export function MatrixCell({ matrix, grid, at, ranks, accusers, children }: CellProps) {
  const source = grid.names[at.row] ?? "";
  const target = grid.names[at.column] ?? "";
  const cell = grid.at(at.row, at.column);
  const back = at.row === at.column ? undefined : grid.at(at.column, at.row);
  const { by } = matrix;
  return (
    <dl class="matrix-cell" aria-live="polite">
      <dt>From</dt>
      <End by={by} name={source} ranks={ranks} accusers={accusers.get(source) ?? []} />
      <dt>To</dt>
      <End by={by} name={target} ranks={ranks} accusers={accusers.get(target) ?? []} />
      {cell ? <Numbers cell={cell} matrix={matrix} /> : <Nothing matrix={matrix} />}
      {by !== "rail" && at.row !== at.column && (
        <>
          <dt>The other way</dt>
          <dd>{back ? si(back.bytes, "B") : "nothing"}</dd>
        </>
      )}
      {children}
    </dl>
  );
}

function Nothing({ matrix }: { matrix: Matrix }) {
  return (
    <>
      <dt>Bytes</dt>
      <dd>{matrix.cells_left_out ? "none, or too few to be listed" : "none"}</dd>
    </>
  );
}

function Numbers({ cell, matrix }: { cell: Cell; matrix: Matrix }) {
  const part = cell.measured_bytes / cell.bytes;
  return (
    <>
      <dt>Bytes</dt>
      <dd>
        <b>{si(cell.bytes, "B")}</b>{" "}
        <span class="soft">{percent(cell.bytes / matrix.bytes)} of all</span>
      </dd>
      <dt>While transferring</dt>
      <dd>
        <b>{si(cell.transfer_bytes_per_second, "B/s")}</b>{" "}
        {cell.transfer_bytes_per_second !== null && (
          <span class="soft">{si(cell.transfer_bytes_per_second * 8, "bit/s")}</span>
        )}
      </dd>
      <dt>Over the whole time</dt>
      <dd>{si(cell.bytes_per_second, "B/s")}</dd>
      <dt>Known by</dt>
      <dd>
        {cell.how === "measured" ? (
          <>
            <Badge tone="good">measured</Badge>{" "}
            <span class="soft">sends and receives name both ends</span>
          </>
        ) : (
          <>
            <Badge>modelled</Badge>{" "}
            <span class="soft">
              from collectives{part > 0 ? `; ${percent(part)} measured` : ""}
            </span>
          </>
        )}
      </dd>
      {cell.counted_bytes !== null && (
        <>
          <dt>NIC counted</dt>
          <dd>
            {si(cell.counted_bytes, "B")}{" "}
            <span class="soft">model {digits(cell.bytes / cell.counted_bytes)} of it</span>
          </dd>
        </>
      )}
    </>
  );
}

/** Both directions of a click: where the bytes go, and where one sees it. */
export function MatrixWays(props: {
  pairs: readonly Ways[];
  left: number;
  incidents: readonly IncidentShort[];
  query: Query;
}) {
  return (
    <>
      {props.pairs.map((ways) => (
        <Way key={`${ways.source} ${ways.target}`} ways={ways} query={props.query} />
      ))}
      {props.left > 0 && <p class="soft">{count(props.left, "more pair")} of ports not shown.</p>}
      {props.incidents.map((incident) => (
        <p key={incident.id} class="matrix-onway">
          On this way:{" "}
          <a href={href(["incident", incident.id])}>{incident.cause.replaceAll("_", " ")}</a> at{" "}
          {named(incident.culprit)}
        </p>
      ))}
    </>
  );
}

function Way({ ways, query }: { ways: Ways; query: Query }) {
  if (!ways.paths.length)
    return (
      <p class="soft">
        No way between {ways.source} and {ways.target}: {ways.reason}
      </p>
    );
  const rates = ways.paths.flat().map((hop) => hop.rate_bits_per_second ?? Number.NaN);
  const slowest = Math.min(...rates.filter(Number.isFinite));
  return (
    <ol class="matrix-way">
      {stopsOf(ways).map((stops) => (
        <li key={stops.map((stop) => stop.label).join()}>
          {stops.slice(0, STOPS_NAMED).map((stop, place) => (
            <span key={stop.label}>
              {place > 0 && <span class="soft"> or </span>}
              <a href={href(["fabric"], { ...query, focus: stop.name })}>{stop.label}</a>
            </span>
          ))}
          {stops.length > STOPS_NAMED && (
            <span class="soft"> or {count(stops.length - STOPS_NAMED, "other")}</span>
          )}
        </li>
      ))}
      <li class="soft">
        {count(ways.count, "way")} of {count(ways.hops ?? 0, "link")}
        {Number.isFinite(slowest) ? `, slowest link ${si(slowest, "bit/s")}` : ""}
      </li>
    </ol>
  );
}

/** Equal ways side by side: more are counted. */
const STOPS_NAMED = 4;
