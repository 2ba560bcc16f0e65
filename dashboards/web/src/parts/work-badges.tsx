/** Marks of an incident: who looks after it, and whether it is silenced. */
import type { Silence } from "../api/service";
import type { Work } from "../api/work";
import { moment, stamp } from "../format";
import { Badge } from "../ui/panel";

/** That no notices are sent, and until when. `now`: unix seconds. */
export function SilencedBadge(props: { silence: Silence | undefined; now: number }) {
  const { silence, now } = props;
  if (!silence) return null;
  const ends = Date.parse(silence.ends) / 1000;
  return (
    <span title={`Until ${stamp(ends)}, by ${silence.created_by}: ${silence.comment}`}>
      <Badge tone="warn">silenced until {moment(ends, now)}</Badge>
    </span>
  );
}

/** Who has acknowledged it, or to whom it is assigned. */
export function LookedAfterBadge({ work }: { work: Work | null }) {
  if (!work) return null;
  const { acknowledged_by: by, acknowledged_note: note, assigned_to: to } = work;
  const words = [by && `acknowledged by ${by}`, to && `assigned to ${to}`].filter(Boolean);
  if (!words.length) return null;
  return (
    <span class="looked-after" title={note || undefined}>
      <Badge tone={by ? "good" : ""}>{words.join(", ")}</Badge>
    </span>
  );
}
