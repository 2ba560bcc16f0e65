/** Whether the service itself is well: a sentence, what is wrong, and its numbers. */
import type { About } from "../api/service";
import { count, duration, percent, si } from "../format";
import { href } from "../route";
import { Badge, Panel, Tile } from "../ui/panel";
import { diskWords } from "./service-questions";
import { type Numbers, number, type Trouble } from "./service-troubles";
import "../style/settings.css";

/** The point in ten seconds. */
export function ServiceVerdict(props: {
  troubles: readonly Trouble[];
  hasNumbers: boolean;
  hasPack: boolean;
}) {
  const { troubles } = props;
  const isBad = troubles.some((one) => one.tone === "bad");
  const tone = isBad ? "bad" : troubles.length ? "warn" : "good";
  const title = troubles.length
    ? isBad
      ? "The service is not well"
      : "The service works, with flaws"
    : "The service is well";
  return (
    <Panel title={title} tone={tone}>
      {troubles.length ? (
        <ul class="troubles">
          {troubles.map((one) => (
            <li key={one.text}>
              <Badge tone={one.tone}>{one.tone === "bad" ? "broken" : "flaw"}</Badge>
              <span>{one.text}</span>
              {one.runbook && <a href={`/runbooks/${one.runbook}`}>what to do</a>}
            </li>
          ))}
        </ul>
      ) : (
        <p class="soft">
          It stores, looks for faults, evaluates its rules, and has delivered its notices.
        </p>
      )}
      {!props.hasNumbers && (
        <p class="soft">
          It keeps no numbers about itself (<code>own_numbers = false</code>, or nothing scrapes its{" "}
          <a href="/metrics">/metrics</a> into it): tiles and curves below stay empty.
        </p>
      )}
      {!props.hasPack && (
        <p class="soft">
          The rule pack is not evaluated here (<code>rules_pack = false</code>): its thresholds for
          slow, late and refused are not looked at.
        </p>
      )}
    </Panel>
  );
}

export function ServiceTiles(props: { about: About; numbers: Numbers; now: number }) {
  const { about, numbers, now } = props;
  const refused = numbers.refused.reduce((sum, { value }) => sum + value, 0);
  const leaders = numbers.leads.filter(({ value }) => value > 0);
  const stores = [...new Set(numbers.processes.map(({ labels }) => labels.store))].join(", ");
  const evaluations = number(numbers.evaluations);
  const missing = number(numbers.missing) ?? 0;
  const memory = numbers.memory.reduce((sum, { value }) => sum + value, 0);
  const processors = numbers.processors.reduce((sum, { value }) => sum + value, 0);
  const hasNumbers = numbers.processes.length > 0;
  return (
    <div class="tiles">
      <Tile
        label="Version"
        value={about.version || "–"}
        hint={`up ${duration(now - about.startedAt)}${stores ? `, store ${stores}` : ""}`}
      />
      <Tile
        label="Samples taken"
        value={si(number(numbers.samples), "/s")}
        hint={
          hasNumbers
            ? refused
              ? `${count(Math.round(refused), "thing")} refused in 15 min`
              : "nothing refused in 15 min"
            : ""
        }
        tone={refused ? "warn" : ""}
        href={href(["settings", "agents"])}
      />
      <Tile
        label="Insert into the store"
        value={duration(number(numbers.insert))}
        hint={`9 in 10 take less; ${rowsWords(number(numbers.pending))}`}
      />
      <Tile
        label="Look for faults"
        value={duration(number(numbers.evaluation))}
        hint={
          evaluations === undefined
            ? "no look is known"
            : `mean; ${Math.round(evaluations)} of 60 due in 5 min, slowest ${duration(number(numbers.evaluationSlowest))}`
        }
        tone={hasNumbers && !evaluations ? "bad" : ""}
      />
      <Tile
        label="Leads"
        value={leaders.map(({ labels }) => broken(labels.instance ?? "?")).join(", ") || "–"}
        hint={`of ${count(numbers.processes.length, "process", "processes")}`}
        tone={leaders.length > 1 ? "bad" : ""}
      />
      <Tile
        label="Agents reporting"
        value={
          number(numbers.agents) === undefined
            ? "–"
            : String((number(numbers.agents) ?? 0) - missing)
        }
        hint={`${missing} missing, ${count(number(numbers.sourcesDown) ?? 0, "source")} down`}
        tone={missing ? "warn" : ""}
        href={href(["settings", "agents"])}
      />
      <Tile
        label="Notices waiting"
        value={String(number(numbers.waiting) ?? "–")}
        hint={number(numbers.waiting) === undefined ? "no receiver is set up" : "for a receiver"}
        tone={number(numbers.waiting) ? "warn" : ""}
        href={href(["settings", "notices"])}
      />
      <Tile
        label="Requests"
        value={si(number(numbers.requests), "/s")}
        hint={`${percent(number(numbers.failing) ?? (hasNumbers ? 0 : undefined))} fail (5xx)`}
        tone={(number(numbers.failing) ?? 0) > 0.01 ? "warn" : ""}
      />
      <Tile
        label="Memory"
        value={hasNumbers ? si(memory, "B") : "–"}
        hint={hasNumbers ? `${processors.toFixed(2)} processors busy` : ""}
      />
      <Tile label="Disk" value={percent(number(numbers.diskFree))} hint={diskHint(numbers)} />
      <Tile
        label="Samples are kept"
        value={about.retention.replace(/(\d)([a-z])/g, "$1 $2") || "–"}
        hint="then they are dropped"
      />
    </div>
  );
}

/** How much is free is the tile's value; a disk of which nothing is known has no future either. */
function diskHint(numbers: Numbers): string {
  if (number(numbers.diskFree) === undefined) return "what is free is not known";
  return `free; ${diskWords(numbers.diskKnown.length > 0, number(numbers.diskLasts))}`;
}

function rowsWords(waiting: number | undefined): string {
  return waiting === undefined
    ? "rows that wait are not known"
    : count(Math.round(waiting), "row waits", "rows wait");
}

/** An address that may go on in another line after its host, and nowhere else. */
const broken = (address: string) => address.replace(":", ":\u200b");
