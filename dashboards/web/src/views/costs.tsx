/**
 * What it would be worth to fix. What is chosen stands in the address:
 *
 *     #/costs?days=28&by=cause
 */
import { askCosts } from "../api/costs";
import { CostRanking, CostTiles, CostWeeks } from "../parts/costs";
import { priceIn } from "../parts/costs-words";
import { keptPrice } from "../price";
import { useResource } from "../resource";
import { route, withQuery } from "../route";
import { now } from "../time";
import { Panel } from "../ui/panel";
import { Below, Shown } from "../ui/states";

/** A week's sums move slowly, and thousands of incidents may be added up. */
const PULSE_SECONDS = 300;
const DAYS = { "7": "last week", "28": "last 4 weeks", "91": "last 13 weeks" } as const;
const DAYS_USUAL = "28";
const RANKINGS = { culprit: "by culprit", cause: "by cause" } as const;
/** Pixels of the tiles and of a few lines, so that what is below moves little. */
const ROOM = 420;

function chosen<Word extends string>(
  word: string | undefined,
  words: Readonly<Record<Word, string>>,
  usual: Word,
): Word {
  return word !== undefined && word in words ? (word as Word) : usual;
}

export default function Costs() {
  const { query } = route.value;
  const days = chosen(query.days, DAYS, DAYS_USUAL);
  const by = chosen(query.by, RANKINGS, "culprit");
  const pulse = Math.floor(now.value / PULSE_SECONDS);
  const to = now.value;
  const from = to - Number(days) * 86_400;
  const question = `${by} ${days}`;
  const ranking = useResource("costs", (abort) => askCosts(by, from, to, abort), pulse, question);
  const weeks = useResource("weeks", (abort) => askCosts("week", from, to, abort), pulse, days);
  const own = keptPrice();
  return (
    <>
      <h1 class="unseen">What troubles cost</h1>
      <Shown resource={ranking} what="costs" room={ROOM}>
        {(account) => (
          <>
            <CostTiles account={account} price={priceIn(account, own)} />
            <Panel
              title="What would it be worth to fix?"
              hint="GPU-hours that jobs lost, by steps played again without the culprit"
              aside={<Choices days={days} by={by} />}
            >
              <CostRanking account={account} price={priceIn(account, own)} />
            </Panel>
          </>
        )}
      </Shown>
      <Below above={[ranking]}>
        <Shown resource={weeks} what="weeks">
          {(account) => <CostWeeks account={account} price={priceIn(account, own)} />}
        </Shown>
      </Below>
    </>
  );
}

function Choices(props: { days: string; by: string }) {
  return (
    <div class="row">
      <Choice label="Added up" name="by" value={props.by} words={RANKINGS} />
      <Choice label="Time" name="days" value={props.days} words={DAYS} />
    </div>
  );
}

function Choice(props: {
  label: string;
  name: string;
  value: string;
  words: Readonly<Record<string, string>>;
}) {
  return (
    <select
      aria-label={props.label}
      value={props.value}
      onChange={(event) => withQuery({ [props.name]: event.currentTarget.value })}
    >
      {Object.entries(props.words).map(([word, text]) => (
        <option key={word} value={word}>
          {text}
        </option>
      ))}
    </select>
  );
}
