/** A table of the report in its panel. */
import type { ComponentChildren } from "preact";
import { Panel } from "../ui/panel";
import { type Column, Table } from "../ui/table";
import type { TableData } from "./data";

type Row = TableData["rows"][number];

export function TablePanel(props: {
  data: TableData;
  tone?: "bad" | "warn" | "good";
  children?: ComponentChildren;
}) {
  const { data } = props;
  const columns: Column<Row>[] = data.columns.map(({ name, is_number }, place) => ({
    name,
    isNumber: is_number,
    show: ({ cells }) => cells[place] ?? "",
  }));
  const places = new Map(data.rows.map((row, place) => [row, String(place)]));
  return (
    <Panel title={data.title} hint={data.explanation} {...(props.tone ? { tone: props.tone } : {})}>
      {data.rows.length > 0 && (
        <Table
          label={data.title}
          columns={columns}
          rows={data.rows}
          keyOf={(row) => places.get(row) ?? ""}
          isMarked={(row) => row.is_marked}
        />
      )}
      {props.children}
    </Panel>
  );
}
