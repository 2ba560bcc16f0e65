/** A line so small that it shows one thing: as usual, or not. */
import { duration } from "../format";
import { sparkPath } from "./now-state";
import "../style/now.css";

const GAP_SECONDS = 200;

export function Spark(props: {
  label: string;
  times: readonly number[];
  values: readonly number[];
  /** Unix seconds. */
  from: number;
  to: number;
  usual?: number | undefined;
  isBad?: boolean;
}) {
  const { times, values, from, to, usual } = props;
  const most = values.reduce((high, value) => Math.max(high, value), 0);
  const top = Math.max(2 * (usual ?? most), Math.min(most, 4 * (usual ?? most)), Number.MIN_VALUE);
  const summary = values.length
    ? `${props.label}: now ${duration(values.at(-1))}, highest ${duration(most)}`
    : `${props.label}: nothing known`;
  return (
    <svg
      class="now-spark"
      viewBox="0 0 100 100"
      preserveAspectRatio="none"
      role="img"
      aria-label={summary}
    >
      <title>{summary}</title>
      {usual !== undefined && (
        <line
          class="usual"
          x1="0"
          x2="100"
          y1={100 - (usual / top) * 100}
          y2={100 - (usual / top) * 100}
        />
      )}
      <path
        class={props.isBad ? "bad" : ""}
        d={sparkPath(times, values, { from, to, top, gap: GAP_SECONDS })}
      />
    </svg>
  );
}
