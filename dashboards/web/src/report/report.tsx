/** The report of `fabricscope diagnose`: the page's own parts, with data that lies in the same file. */
import { Linked } from "../parts/verdict";
import { Panel } from "../ui/panel";
import "../style/report.css";
import type { ReportData } from "./data";
import { Job } from "./job";
import { TablePanel } from "./table";
import { VerdictPart } from "./verdict";

export function Report({ data }: { data: ReportData }) {
  const isQuiet = !data.verdicts.length;
  const isClear = isQuiet && !data.unclear.length;
  // What stands in the way of an all-clear takes its place.
  const [first, ...others] = data.unclear;
  const quiet = first ?? "Nothing stands out.";
  const tone = isClear ? ("good" as const) : ("warn" as const);
  return (
    // Names lead nowhere: a file has no other views.
    <Linked.Provider value={false}>
      <main class="report">
        <header class="report-head">
          <h1>Fabricscope report</h1>
          {data.ranks_read.map((line) => (
            <p key={line}>{line}</p>
          ))}
          <p class="soft">{data.about}</p>
        </header>
        {data.verdicts.map((one, place) => (
          <VerdictPart key={place} data={one} />
        ))}
        {data.verdicts_note && <p class="soft">{data.verdicts_note}</p>}
        {(isQuiet || data.looked.length + data.failed.length > 0) && (
          <Panel
            title={isQuiet ? quiet : "What was looked for"}
            {...(isQuiet ? { tone, class: "report-quiet" } : {})}
          >
            {(isQuiet ? others : data.unclear).map((line) => (
              <p key={line} class="report-failed">
                {line}
              </p>
            ))}
            {data.looked.map((line) => (
              <p key={line} class="soft">
                {line}
              </p>
            ))}
            {data.failed.map((line) => (
              <p key={line} class="report-failed">
                {line}
              </p>
            ))}
          </Panel>
        )}
        {data.jobs.map((job) => (
          <Job key={job.job} data={job} verdicts={data.verdicts} />
        ))}
        {data.warnings && <TablePanel data={data.warnings} tone="warn" />}
        <TablePanel data={data.read}>
          {data.problems.map(({ title, files }) => (
            <details key={title}>
              <summary>{title}</summary>
              <ul>
                {files.map(([path, reason], place) => (
                  <li key={place}>
                    <code>{path}</code>: {reason}
                  </li>
                ))}
              </ul>
            </details>
          ))}
        </TablePanel>
      </main>
    </Linked.Provider>
  );
}
