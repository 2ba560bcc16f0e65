/** How evenly sent bytes are spread over rails, NICs, hosts and ranks. */
import type { Balance, Share } from "../api/matrix";
import { count, digits, percent, si } from "../format";
import { Badge } from "../ui/panel";
import { BY_WORDS, called, evenness } from "./matrix-words";

/** Bars of one list: more would be a wall. The farthest from the mean are shown then. */
const BARS_MAX = 16;

/** Closer to the mean is even; of many such bars there is nothing to see. */
const EVEN = 1.01;
const EVEN_BARS_MAX = 8;

export function MatrixBalance({ balances }: { balances: readonly Balance[] }) {
  return (
    <div class="matrix-balances">
      {balances.map((balance) => (
        <section key={balance.over} aria-label={`Balance over ${BY_WORDS[balance.over].many}`}>
          <h3>
            {BY_WORDS[balance.over].many}{" "}
            <Badge tone={balance.highest_by_mean < 1.1 ? "good" : "warn"}>
              {evenness(balance)}
            </Badge>
          </h3>
          <p class="soft">
            {count(balance.things, BY_WORDS[balance.over].one)}, mean {si(balance.mean_bytes, "B")}{" "}
            {balance.is_counted ? "counted by NICs" : "by the model"}; variation{" "}
            {percent(balance.variation)}, Gini {digits(Number(balance.gini.toFixed(3)))}
          </p>
          <Bars balance={balance} />
        </section>
      ))}
    </div>
  );
}

function Bars({ balance }: { balance: Balance }) {
  const mean = 1 / balance.things;
  if (balance.highest_by_mean < EVEN && balance.things > EVEN_BARS_MAX) return null;
  const out = new Set(balance.standing_out.map((one) => one.name));
  const all: readonly Share[] = balance.shares.length ? balance.shares : balance.standing_out;
  const shown =
    all.length > BARS_MAX
      ? [...all]
          .sort((a, b) => Math.abs(b.share - mean) - Math.abs(a.share - mean))
          .slice(0, BARS_MAX)
      : all;
  if (!shown.length) return <p class="soft">None stands out.</p>;
  const most = Math.max(...shown.map((one) => one.share), mean);
  return (
    <>
      <ul class="matrix-bars">
        {shown.map((one) => (
          <li key={one.name} class={out.has(one.name) ? "is-out" : ""}>
            <span class="name" title={one.name}>
              {called(balance.over, one.name)}
            </span>
            <span class="bar" aria-hidden="true">
              <i style={{ width: `${(one.share / most) * 100}%` }} />
              <b style={{ left: `${(mean / most) * 100}%` }} />
            </span>
            <span class="n">{si(one.bytes, "B")}</span>
            <span class="n">{signed(one.share / mean - 1)}</span>
          </li>
        ))}
      </ul>
      <LeftOut balance={balance} shown={shown.length} />
    </>
  );
}

function LeftOut({ balance, shown }: { balance: Balance; shown: number }) {
  const rest = balance.things - shown;
  if (!rest) return null;
  return (
    <p class="soft">
      {balance.shares.length ? "The farthest from the mean" : "Those far from the others"};{" "}
      {count(rest, "other")} not shown.
    </p>
  );
}

/** `+4.9 %` above the mean. */
function signed(part: number): string {
  if (Math.abs(part) < 0.0005) return "±0 %";
  return `${part > 0 ? "+" : "−"}${percent(Math.abs(part))}`;
}
