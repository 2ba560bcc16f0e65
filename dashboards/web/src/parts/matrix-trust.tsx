/** How far a matrix may be believed: the model against counters, what was assumed, what was left out. */
import type { Check, Matrix } from "../api/matrix";
import { count, digits, percent, si } from "../format";
import { Badge } from "../ui/panel";
import { Table } from "../ui/table";
import { ASSUMPTION_WORDS, CHECK_GOOD, called, checkWords } from "./matrix-words";

export function MatrixTrust({ matrix }: { matrix: Matrix }) {
  return (
    <>
      {matrix.check ? (
        <CheckOf check={matrix.check} />
      ) : (
        <p class="soft">
          No NIC's counters can be compared: none is known, or other jobs use them, too.
        </p>
      )}
      <h3>What was assumed</h3>
      {matrix.assumptions.length ? (
        <ul>
          {matrix.assumptions.map((word) => (
            <li key={word}>{ASSUMPTION_WORDS[word] ?? word.replaceAll("_", " ")}</li>
          ))}
        </ul>
      ) : (
        <p class="soft">Nothing: records and debug lines name it all.</p>
      )}
      <h3>What is in it, and what is not</h3>
      <ul>
        {leftOut(matrix).map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
    </>
  );
}

function leftOut(matrix: Matrix): string[] {
  const lines = [
    `${count(matrix.operations_seen, "operation")} of ${matrix.source} added up, of ${matrix.operations.toLocaleString("en")} in this time${matrix.looked_at < 1 ? ` (${percent(matrix.looked_at)} of it looked at; two slices stand for all)` : ""}.`,
    `${si(matrix.bytes, "B")} placed, ${si(matrix.local_bytes, "B")} of them within hosts. Payload, without headers.`,
  ];
  if (matrix.by === "nic" || matrix.by === "rail")
    lines.push("What stays within a host is not drawn here: NICs do not see it.");
  if (matrix.cells_left_out)
    lines.push(
      `${count(matrix.cells_left_out, "pair")} with the fewest bytes not drawn: ${si(matrix.bytes_left_out, "B")}.`,
    );
  if (matrix.up_bytes)
    lines.push(
      `${si(matrix.up_bytes, "B")} handed to switches that add up: from no rank to another.`,
    );
  if (matrix.unplaced_bytes)
    lines.push(
      `${si(matrix.unplaced_bytes, "B")} of operations whose members or shape are not known.`,
    );
  if (matrix.nameless_bytes)
    lines.push(`${si(matrix.nameless_bytes, "B")} between ranks whose ${matrix.by} is not known.`);
  return lines;
}

function CheckOf({ check }: { check: Check }) {
  const isGood = check.ratio >= CHECK_GOOD[0] && check.ratio <= CHECK_GOOD[1];
  return (
    <>
      <p>
        <Badge tone={isGood ? "good" : "warn"}>
          model {digits(Number(check.ratio.toFixed(3)))} of counted
        </Badge>{" "}
        {checkWords(check.ratio)}
      </p>
      <p class="soft">
        {count(check.nics, "NIC")} compared: {si(check.modelled_bytes, "B")} modelled,{" "}
        {si(check.counted_bytes, "B")} counted
        {check.nics_shared
          ? `; ${count(check.nics_shared, "NIC")} left out, other jobs use them`
          : ""}
        .
      </p>
      <details open={check.worst.length <= 8}>
        <summary>NICs that differ most from the others</summary>
        <Table
          label="Model against counters"
          rows={check.worst}
          keyOf={(one) => one.nic}
          isMarked={(one) => Math.abs(one.ratio - check.median_ratio) > 0.03}
          noun="NIC"
          columns={[
            { name: "NIC", show: (one) => called("nic", one.nic), by: (one) => one.nic },
            {
              name: "Modelled",
              show: (one) => si(one.modelled_bytes, "B"),
              by: (one) => one.modelled_bytes,
              isNumber: true,
            },
            {
              name: "Counted",
              show: (one) => si(one.counted_bytes, "B"),
              by: (one) => one.counted_bytes,
              isNumber: true,
            },
            {
              name: "Ratio",
              show: (one) => digits(Number(one.ratio.toFixed(3))),
              by: (one) => one.ratio,
              isNumber: true,
            },
          ]}
        />
      </details>
    </>
  );
}
