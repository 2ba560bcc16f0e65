/** What it would be worth to fix: an account of costs as a ranking, and week by week. */
import type { Account, CostEntry } from "../api/costs";
import { count, percent } from "../format";
import { href } from "../route";
import { Panel, Tile } from "../ui/panel";
import { Empty } from "../ui/states";
import { type Column, Table } from "../ui/table";
import { causeWords, reservations, weekly, weeksOf } from "./costs-words";
import { hoursNumber, money, type Price } from "./verdict-cost";
import "../style/incident.css";
import "../style/job.css";

export function CostTiles({ account, price }: { account: Account; price: Price | undefined }) {
  const { gpu_hours: hours, incidents, unmeasured } = account;
  const week = weekly(hours, weeksOf(account));
  return (
    <div class="tiles">
      <Tile
        label="GPU-hours lost"
        value={hoursNumber(hours)}
        {...(price ? { hint: money(hours, price) } : {})}
      />
      <Tile
        label="GPU-hours a week"
        value={hoursNumber(week)}
        {...(price ? { hint: money(week, price) } : {})}
      />
      <Tile
        label="Incidents"
        value={incidents.toLocaleString("en")}
        {...(unmeasured ? { hint: `${unmeasured} not measured` } : {})}
      />
    </div>
  );
}

/** The dearest first; what a line is about the account says. */
export function CostRanking(props: { account: Account; price: Price | undefined }) {
  const { account, price } = props;
  const weeks = weeksOf(account);
  if (!account.entries.length)
    return (
      <Empty title="No trouble is known of that time">
        <a href={href(["incident"])}>All incidents</a>
      </Empty>
    );
  const about: readonly Column<CostEntry>[] =
    account.by === "culprit"
      ? [
          {
            name: "What to fix",
            show: (one) => <b>{one.culprit || "no culprit was found"}</b>,
            by: (one) => one.culprit,
            csv: (one) => one.culprit,
          },
          CAUSE,
        ]
      : [CAUSE];
  return (
    <>
      <Table
        label={account.by === "culprit" ? "Costs by culprit" : "Costs by cause"}
        noun="line"
        rows={account.entries}
        keyOf={(one) => one.key}
        columns={[
          ...about,
          {
            name: "Share",
            show: (one) => (isMeasured(one) ? <Share value={one.share} /> : "–"),
            by: ({ share }) => share,
            isNumber: true,
          },
          ...sums(price),
          {
            name: "Hours a week",
            show: (one) => (isMeasured(one) ? hoursNumber(weekly(one.gpu_hours, weeks)) : "–"),
            by: (one) => weekly(one.gpu_hours, weeks),
            isNumber: true,
          },
          ...(price
            ? [
                {
                  name: "Money a week",
                  show: (one: CostEntry) => money(weekly(one.gpu_hours, weeks), price),
                  by: (one: CostEntry) => weekly(one.gpu_hours, weeks) * price.amount,
                  isNumber: true,
                },
              ]
            : []),
          {
            name: "Dearest",
            show: (one) =>
              one.dearest ? (
                <a class="unbroken" href={href(["incident", one.dearest])}>
                  {one.dearest}
                </a>
              ) : (
                <span class="soft">none measured</span>
              ),
            csv: (one) => one.dearest,
          },
        ]}
      />
      {!price && (
        <p class="soft">
          With a <a href={href(["settings", "browser"])}>price of a GPU-hour</a> it is in money,
          too.
        </p>
      )}
      {reservations(account).map((text) => (
        <p key={text} class="soft">
          {text}
        </p>
      ))}
    </>
  );
}

const CAUSE: Column<CostEntry> = { name: "Cause", show: causeWords, by: causeWords };

function sums(price: Price | undefined): readonly Column<CostEntry>[] {
  return [
    {
      name: "Incidents",
      show: (one) => one.incidents.toLocaleString("en"),
      by: (one) => one.incidents,
      isNumber: true,
    },
    {
      name: "Unmeasured",
      show: (one) => (one.unmeasured ? one.unmeasured.toLocaleString("en") : "–"),
      by: (one) => one.unmeasured,
      isNumber: true,
    },
    {
      name: "GPU-hours",
      show: (one) => (isMeasured(one) ? hoursNumber(one.gpu_hours) : "–"),
      csv: (one) => (isMeasured(one) ? one.gpu_hours : ""),
      by: (one) => one.gpu_hours,
      isNumber: true,
    },
    ...(price
      ? [
          {
            name: "Money",
            show: (one: CostEntry) => money(one.gpu_hours, price),
            by: (one: CostEntry) => one.gpu_hours * price.amount,
            isNumber: true,
          },
        ]
      : []),
  ];
}

/** Of one of whose incidents the cost is known; of the others nothing is, and 0 would be a number. */
const isMeasured = (one: CostEntry) => one.unmeasured < one.incidents;

function Share({ value }: { value: number }) {
  return (
    <span class="share">
      <i style={{ width: `${100 * value}%` }} aria-hidden="true" />
      {percent(value)}
    </span>
  );
}

/** Weeks in order of time; bars are shares of the dearest week. */
export function CostWeeks({ account, price }: { account: Account; price: Price | undefined }) {
  const { entries } = account;
  const most = Math.max(...entries.map((one) => one.gpu_hours));
  if (!entries.length) return null;
  return (
    <Panel
      title="Week by week"
      hint={`${count(entries.length, "week")}, each from Monday, UTC; the first and the last may be parts`}
    >
      <Table
        label="Costs by week"
        noun="week"
        rows={entries}
        keyOf={(one) => one.key}
        columns={[
          {
            name: "Week from",
            show: (one) => <span class="unbroken">{one.key}</span>,
            by: (one) => one.key,
          },
          {
            name: "Beside the dearest",
            show: (one) => <Share value={most > 0 ? one.gpu_hours / most : 0} />,
          },
          ...sums(price),
        ]}
      />
    </Panel>
  );
}
