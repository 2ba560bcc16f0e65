/** Who shares a link: the jobs whose bytes can cross it, and between which NICs they go. */
import type { LinkShares } from "../api/link-shares";
import { count, duration, percent, si } from "../format";
import type { Resource } from "../resource";
import { href, type Query } from "../route";
import { Shown } from "../ui/states";

const FLOWS_SHOWN = 8;

export function SharedBy({ shares, when }: { shares: Resource<LinkShares>; when: Query }) {
  return (
    <section aria-label="Who shares it">
      <h3>Who shares it</h3>
      <Shown resource={shares} what="shares">
        {(found) => <Jobs found={found} when={when} />}
      </Shown>
    </section>
  );
}

function Jobs({ found, when }: { found: LinkShares; when: Query }) {
  return (
    <>
      {found.jobs.length === 0 && (
        <p class="soft">
          No bytes of a job are expected here: {count(found.jobs_looked_at, "job")} looked at.
        </p>
      )}
      {found.jobs.map((one) => (
        <details key={one.job} class="fabric-share">
          <summary>
            <b>{one.job}</b> {one.user && `(${one.user}) `}
            {percent(one.share)}{" "}
            <span class="soft">{si(one.bytes_per_second * 8, "b/s")} in the mean</span>
            <i aria-hidden="true" style={{ width: `${one.share * 100}%` }} />
          </summary>
          <ul>
            {one.flows.slice(0, FLOWS_SHOWN).map((flow) => (
              <li key={`${flow.source} ${flow.target}`}>
                <span class="mono">
                  {flow.source} → {flow.target}
                </span>{" "}
                {si(flow.bytes, "B")}
                {flow.crossing < 1 && (
                  <span class="soft" title="It has other ways of equal length">
                    {" "}
                    {percent(flow.crossing)} of it
                  </span>
                )}
              </li>
            ))}
          </ul>
          {one.flows.length + one.flows_left_out > FLOWS_SHOWN && (
            <p class="soft">
              {count(one.flows.length + one.flows_left_out - FLOWS_SHOWN, "smaller flow")} not
              shown.
            </p>
          )}
          {one.unknown_because && <p class="soft">Unknown because {one.unknown_because}.</p>}
          <a href={href(["matrix"], { ...when, job: one.job, by: "nic" })}>Its traffic matrix</a>
        </details>
      ))}
      {found.users.length > 1 && (
        <p>
          By user:{" "}
          {found.users.map((one) => `${one.user || "not known"} ${percent(one.share)}`).join(", ")}
        </p>
      )}
      {found.unknown.map((reason) => (
        <p key={reason} class="soft">
          Not known of {reason}.
        </p>
      ))}
      {found.jobs_left_out > 0 && (
        <p class="soft">{count(found.jobs_left_out, "smaller job")} not looked at.</p>
      )}
      <p class="soft">
        Modelled from collectives; where switches choose among equal ways, each counts with its
        share.
        {found.age_seconds !== null &&
          ` The newest record is ${duration(found.age_seconds)} older than the end of this time.`}
      </p>
    </>
  );
}
