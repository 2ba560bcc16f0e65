/** The ranks of a job: where each runs, how late it comes, how often it is last. */
import type { Heat, HeatRank } from "../api/heat";
import { duration, percent } from "../format";
import { type Column, Table } from "../ui/table";
import type { RankRecord } from "./heat";

interface Row extends RankRecord {
  readonly who: HeatRank;
}

interface Choosing {
  readonly accused: ReadonlySet<number>;
  readonly chosen: number | undefined;
  readonly hostHref?: (host: string) => string;
  readonly onRank: (rank: number) => void;
}

export function RankTable(props: Choosing & { heat: Heat; records: readonly RankRecord[] }) {
  const rows: Row[] = props.records.flatMap((record) => {
    const who = props.heat.ranks[record.place];
    return who ? [{ ...record, who }] : [];
  });
  rows.sort((a, b) => b.lastShare - a.lastShare || b.median - a.median);
  return (
    <Table
      label="Ranks"
      columns={columnsFor(props)}
      rows={rows}
      keyOf={({ who }) => String(who.rank)}
      isMarked={({ who }) => who.rank === props.chosen}
      noun="rank"
    />
  );
}

function columnsFor(choosing: Choosing): Column<Row>[] {
  const { hostHref } = choosing;
  return [
    {
      name: "Rank",
      show: ({ who }) => <RankButton rank={who.rank} {...choosing} />,
      by: ({ who }) => who.rank,
    },
    {
      name: "Host",
      show: ({ who: { host } }) =>
        host && hostHref ? <a href={hostHref(host)}>{host}</a> : (host ?? "–"),
      by: ({ who }) => who.host ?? "",
    },
    { name: "GPU", show: ({ who }) => who.gpu ?? "–", by: ({ who }) => who.gpu ?? "" },
    { name: "NIC", show: ({ who }) => who.device ?? "–", by: ({ who }) => who.device ?? "" },
    {
      name: "Late, median",
      show: ({ median }) => (median < 0 ? `${duration(-median)} early` : duration(median)),
      by: ({ median }) => median,
      isNumber: true,
    },
    {
      name: "Last in, share of steps",
      show: ({ lastShare }) => (
        <span class="share">
          <i style={{ width: `${lastShare * 100}%` }} aria-hidden="true" />
          {percent(lastShare)}
        </span>
      ),
      by: ({ lastShare }) => lastShare,
      isNumber: true,
    },
  ];
}

function RankButton({ rank, accused, chosen, onRank }: Choosing & { rank: number }) {
  return (
    <button
      type="button"
      class="plain link"
      title="Show this rank's NIC and GPU"
      aria-pressed={rank === chosen}
      onClick={() => onRank(rank)}
    >
      <span class="unseen">Show rank </span>
      {rank}
      {accused.has(rank) && <span class="accused"> ▶ accused</span>}
    </button>
  );
}
