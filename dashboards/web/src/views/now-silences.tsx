/** The silences in force: who looks at what is wrong must see what sends no notices, and for how long. */
import type { Silence } from "../api/service";
import { count, moment, stamp } from "../format";
import { write } from "../parts/service-matchers";
import { href } from "../route";
import { now } from "../time";
import { Panel } from "../ui/panel";

const SHOWN = 5;

export function SilencesNow({ silences }: { silences: readonly Silence[] | undefined }) {
  const active = (silences ?? []).filter((one) => one.state === "active");
  if (!active.length) return null;
  return (
    <Panel
      title={`${count(active.length, "silence")} in force`}
      hint="Incidents are shown all the same; no notices go out"
      tone="warn"
      aside={<a href={href(["settings", "notices"])}>All silences</a>}
    >
      <ul class="now-silences">
        {active.slice(0, SHOWN).map((one) => (
          <SilenceLine key={one.id} silence={one} />
        ))}
        {active.length > SHOWN && <li class="soft">and {active.length - SHOWN} more</li>}
      </ul>
    </Panel>
  );
}

function SilenceLine({ silence }: { silence: Silence }) {
  const ends = Date.parse(silence.ends) / 1000;
  return (
    <li>
      <code>{silence.matchers.map(write).join(", ")}</code>{" "}
      <span title={stamp(ends)}>until {moment(ends, now.value)}</span>{" "}
      <span class="soft">
        by {silence.created_by}: {silence.comment}
      </span>
    </li>
  );
}
