/** A verdict of the report: the card, its evidence in words and drawn, who only waits, what it is not. */
import { useMemo } from "preact/hooks";
import { si } from "../format";
import { EvidenceList } from "../parts/evidence";
import { Bars } from "../parts/evidence-bars";
import { StepComparison } from "../parts/step-compare";
import { DotTrack } from "../parts/timeline-dot-track";
import { RuledOut, VerdictCard, Victims } from "../parts/verdict";
import { causeOf } from "../parts/verdict-words";
import { Panel } from "../ui/panel";
import { Plot } from "../ui/plot";
import type { FigureData, LinesData, VerdictData } from "./data";
import { Times } from "./times";

export function VerdictPart({ data }: { data: VerdictData }) {
  const { verdict, figures } = data;
  const pictures = verdict.evidence.map((_, place) => {
    const own = figures.filter((figure) => figure.evidence === place);
    return own.length
      ? { made: own.map((one) => <Figure key={one.title} figure={one} of={data} />) }
      : undefined;
  });
  const others = figures.filter((figure) => figure.evidence === null);
  const band = { from: data.blamed.start, to: data.blamed.end };
  return (
    <>
      <VerdictCard verdict={verdict} />
      <div class="report-split">
        <Panel title="Evidence" hint="what was seen, against what is usual">
          <EvidenceList
            evidence={verdict.evidence}
            culprit={verdict.culprit}
            pictures={pictures}
            bands={[band]}
          />
          {others.length > 0 && (
            <div class="columns">
              {others.map((one) => (
                <Figure key={one.title} figure={one} of={data} />
              ))}
            </div>
          )}
        </Panel>
        <div class="report-stack">
          <Panel title="When, and what it costs">
            <p>{sentence(data.when)}.</p>
            {data.costs.map((line) => (
              <p key={line}>Cost: {line}</p>
            ))}
            {data.clock && <p class="soft">{data.clock}</p>}
          </Panel>
          <Panel title="Late only because of it">
            <Victims verdict={verdict} />
          </Panel>
          <Panel title="Ruled out">
            <RuledOut verdict={verdict} />
          </Panel>
        </div>
      </div>
      {data.steps && (
        <section class="report-stack" aria-label="Slow steps against normal ones">
          <h2>Slow steps against normal ones</h2>
          <StepComparison data={data.steps} />
        </section>
      )}
    </>
  );
}

const sentence = (words: string) => words.charAt(0).toUpperCase() + words.slice(1);

function Figure({ figure, of }: { figure: FigureData; of: VerdictData }) {
  const { drawing, title, explanation } = figure;
  if (drawing.kind === "dots") return <DotFigure figure={figure} of={of} />;
  return (
    <figure class="report-figure">
      <h3>{title}</h3>
      {drawing.kind === "bars" ? (
        <Bars
          label={`${title}.`}
          drawn={{
            kind: "bars",
            unit: drawing.unit,
            note: explanation,
            bars: drawing.bars.map(({ label, short, value, is_culprit }) => ({
              label,
              short,
              value,
              isCulprit: is_culprit,
            })),
          }}
        />
      ) : (
        <PeerLines figure={figure} drawing={drawing} of={of} />
      )}
    </figure>
  );
}

function DotFigure({ figure, of }: { figure: FigureData; of: VerdictData }) {
  const { drawing, title, explanation } = figure;
  const { start, end } = of.blamed;
  const { cause } = of.verdict;
  const bands = useMemo(
    () => [{ id: title, from: start, to: end, label: causeOf(cause).title }],
    [title, start, end, cause],
  );
  if (drawing.kind !== "dots") return null;
  return (
    <figure class="report-figure">
      <Times label={title} span={of.shown} bands={bands}>
        <DotTrack
          title={title}
          sets={drawing.sets}
          low={drawing.low}
          high={drawing.high}
          isLog={drawing.is_log}
          height={150}
        />
      </Times>
      <figcaption class="soft">{explanation}</figcaption>
    </figure>
  );
}

/** The culprit's lines over those of all its peers; a legend of so many would not help. */
function PeerLines(props: { figure: FigureData; drawing: LinesData; of: VerdictData }) {
  const { drawing, figure, of } = props;
  const culprits = drawing.lines.filter((line) => line.is_culprit).map((line) => line.label);
  const who = culprits.slice(0, 3).join(", ") || "the culprit";
  return (
    <>
      <Plot
        label={`${figure.title}: ${who} against ${drawing.peers} peers. ${figure.explanation}`}
        times={drawing.times}
        lines={drawing.lines.map((line) => ({
          label: line.label,
          values: line.values,
          ...(line.is_culprit ? { colour: "bad", width: 2.2 } : { colour: "compute", width: 1 }),
        }))}
        format={(value) => si(value, "")}
        height={140}
        bands={[{ from: of.blamed.start, to: of.blamed.end }]}
        hasLegend={false}
      />
      <figcaption class="soft">
        <span class="key">
          <i style={{ "--key": "var(--bad)" }} aria-hidden="true" />
          {who}
        </span>{" "}
        <span class="key">
          <i style={{ "--key": "var(--compute)" }} aria-hidden="true" />
          {drawing.peers} peers
        </span>{" "}
        {figure.explanation}
      </figcaption>
    </>
  );
}
