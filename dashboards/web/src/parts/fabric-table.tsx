/** Links as a table, the worst first: the drawing's content for keyboards and screen readers. */
import { percent } from "../format";
import { type Column, Table } from "../ui/table";
import { type Frame, type LinkNow, pauseWord } from "./fabric-frames";
import { endName, type FabricEnd, type FabricLink, type Focus } from "./fabric-graph";
import { QUANTITIES } from "./fabric-scale";

export interface FabricTableProps {
  readonly label: string;
  readonly frame: Frame;
  readonly links: readonly number[];
  readonly chosen: Focus | undefined;
  readonly onChoose: (focus: Focus) => void;
  /** The node whose links they are: then only the other end is named. */
  readonly node?: number;
}

interface Row extends LinkNow {
  readonly link: FabricLink;
}

const shown = (value: number, show: (value: number) => string) =>
  Number.isNaN(value) ? "–" : show(value);

export function FabricTable({ label, frame, links, chosen, onChoose, node }: FabricTableProps) {
  const rows = links.flatMap((index): Row[] => {
    const link = frame.graph.links[index];
    return link ? [{ link, ...frame.link(index) }] : [];
  });
  const columns: Column<Row>[] = [
    {
      name: "Link",
      show: ({ link, isUp }) => (
        <button
          type="button"
          class="plain fabric-link"
          onClick={() => onChoose({ kind: "link", index: link.index })}
        >
          {endsOf(link, node).map((end, place) => (
            <span key={end.id} title={endName(end)}>
              {place ? "– " : ""}
              {endName(end)}
            </span>
          ))}
          {isUp === false && <span class="badge bad">down</span>}
        </button>
      ),
      by: ({ link }) => endsOf(link, node).map(endName).join(" "),
    },
    {
      name: "Used",
      show: (row) => shown(row.utilisation, percent),
      by: (row) => row.utilisation,
      isNumber: true,
    },
    {
      name: "Errors",
      show: (row) => shown(row.errors, QUANTITIES.errors.show),
      by: (row) => row.errors,
      isNumber: true,
    },
    {
      name: "Paused",
      show: (row) => pauseWord(row) || "–",
      by: (row) => row.pause,
      isNumber: true,
    },
  ];
  return (
    <Table
      label={label}
      columns={columns}
      rows={rows}
      keyOf={({ link }) => link.id}
      isMarked={({ link }) => chosen?.kind === "link" && chosen.index === link.index}
      noun="link"
    />
  );
}

/** Both ends, or, seen from a node, its own port and the other end. */
function endsOf(link: FabricLink, node: number | undefined): FabricEnd[] {
  return link.high.node === node ? [link.high, link.low] : [link.low, link.high];
}
