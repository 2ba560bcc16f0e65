/** How slow steps of a job differ from its others, ranked. */
import type { StandsOut, StepsDiffer } from "../api/steps";
import { count, percent } from "../format";
import "../style/steps.css";
import { type Column, Table } from "../ui/table";
import { differenceWords } from "./step-compare-words";

const KINDS: Readonly<Record<string, string>> = {
  rank: "rank",
  operation: "collective",
  port: "port",
  gpu: "GPU",
  host: "host",
};

const shown = (one: StandsOut, value: number) => differenceWords(one.what, one.unit, value);

const COLUMNS: readonly Column<StandsOut>[] = [
  { name: "What", show: (one) => KINDS[one.kind] ?? one.kind, by: (one) => one.kind },
  { name: "Which", show: (one) => one.name, by: (one) => one.name },
  { name: "Number", show: (one) => one.what, by: (one) => one.what },
  {
    name: "Normal",
    show: (one) => shown(one, one.normal),
    by: (one) => one.normal,
    isNumber: true,
  },
  { name: "Slow", show: (one) => shown(one, one.slow), by: (one) => one.slow, isNumber: true },
  {
    name: "Higher",
    show: (one) => (
      <span
        title={`in ${percent(one.higher_share)} of all pairs of a slow and a normal one; 50 % is no difference`}
      >
        {percent(one.higher_share)}
      </span>
    ),
    by: (one) => one.higher_share,
    isNumber: true,
  },
  {
    name: "Steps",
    show: (one) => `${one.slow_count} slow, ${one.normal_count} normal`,
    by: (one) => one.slow_count,
    isNumber: true,
  },
];

export function StandingOut({ data }: { data: StepsDiffer }) {
  const { found, candidates, slow_steps, normal_steps, left_out, why_nothing } = data.differences;
  const tried = `${count(slow_steps, "slow step")} against ${normal_steps} others, ${count(candidates, "number")} compared.`;
  if (!found.length)
    return (
      <p class="soft" role="status">
        Nothing stands out: {why_nothing}. {tried}
      </p>
    );
  return (
    <>
      <Table
        label="What stands out in slow steps"
        columns={COLUMNS}
        rows={found}
        keyOf={(one) => `${one.kind} ${one.name} ${one.what}`}
        noun="difference"
      />
      <p class="soft">
        Higher: in how many of all pairs of a slow and a normal step the slow one is higher; 50 % is
        no difference. {tried}{" "}
        {left_out > 0 && `${count(left_out, "difference")} less clear not shown.`}
      </p>
    </>
  );
}
