/** One query: its letter, its field, its result. */
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { count, duration } from "../format";
import type { EditorProps } from "./explore-editor";
import { metricsOf, type Unknown } from "./explore-names";
import { type Flaw, letterOf, placed, plainError } from "./explore-state";

export interface RowOutcome {
  readonly series?: number;
  readonly seconds?: number;
  readonly notes?: readonly string[];
  /** Samples that the service read. */
  readonly samples?: number | undefined;
  /** Metrics of it that the store does not hold. */
  readonly unknown?: readonly Unknown[];
  /** The service's error about it. */
  readonly error?: string;
}

/** Take another metric in place of one, and run. */
export type OnName = (from: string, to: string) => void;
/** How many series these metrics have. */
export type CardinalityOf = (names: readonly string[]) => Promise<ReadonlyMap<string, number>>;

export interface RowProps extends Omit<EditorProps, "label" | "onFlaws"> {
  readonly place: number;
  readonly isSole: boolean;
  /** Whether the text is what was asked last. */
  readonly isRun: boolean;
  readonly outcome: RowOutcome | undefined;
  readonly onName: OnName;
  readonly cardinality: CardinalityOf;
  readonly onFormat: () => void;
  readonly onRemove: () => void;
}

type Loaded = { readonly Editor?: ComponentType<EditorProps>; readonly isBroken?: boolean };

/** The field with completion, when its chunk has come; until then, and without it, a plain one. */
function Field(props: EditorProps) {
  const [loaded, setLoaded] = useState<Loaded>({});
  useEffect(() => {
    let isWanted = true;
    import("./explore-editor").then(
      ({ default: Editor }) => isWanted && setLoaded({ Editor }),
      () => isWanted && setLoaded({ isBroken: true }),
    );
    return () => {
      isWanted = false;
    };
  }, []);
  if (loaded.Editor) return <loaded.Editor {...props} />;
  return (
    <textarea
      class="explore-editor mono"
      aria-label={props.label}
      rows={1}
      readOnly={!loaded.isBroken}
      value={props.value}
      onFocus={props.onFocus}
      onInput={(event) => props.onChange(event.currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key !== "Enter" || event.shiftKey) return;
        event.preventDefault();
        props.onRun();
      }}
    />
  );
}

export function QueryRow(props: RowProps) {
  const [flaws, setFlaws] = useState<readonly Flaw[]>([]);
  const letter = letterOf(props.place);
  return (
    <div class="explore-row">
      <span class="letter" aria-hidden="true">
        {letter}
      </span>
      <div class="field">
        <Field {...props} label={`Query ${letter}, PromQL`} onFlaws={setFlaws} />
        <Outcome
          outcome={props.outcome}
          isRun={props.isRun}
          text={props.value}
          flaws={flaws}
          onName={props.onName}
          cardinality={props.cardinality}
        />
      </div>
      <div class="buttons">
        <button
          type="button"
          title="Write it as everybody does"
          disabled={!props.value.trim()}
          onClick={props.onFormat}
        >
          Format
        </button>
        <button
          type="button"
          aria-label={`Remove query ${letter}`}
          title="Remove"
          disabled={props.isSole && !props.value}
          onClick={props.onRemove}
        >
          ×
        </button>
      </div>
    </div>
  );
}

function Outcome(props: {
  onName: OnName;
  cardinality: CardinalityOf;
  outcome: RowOutcome | undefined;
  isRun: boolean;
  text: string;
  flaws: readonly Flaw[];
}) {
  const { outcome, isRun, text, flaws } = props;
  if (!isRun)
    return <p class="explore-outcome soft">{text.trim() ? "Not run yet: Enter runs it." : ""}</p>;
  if (outcome?.error !== undefined)
    return <Wrong error={outcome.error} text={text} flaw={flaws[0]} />;
  if (outcome?.series === undefined)
    return (
      <>
        <p class="explore-outcome soft">Asking …</p>
        <Cost query={text} cardinality={props.cardinality} />
      </>
    );
  return (
    <>
      <p class="explore-outcome soft">
        {count(outcome.series, "series", "series")} in {duration(outcome.seconds)}
        {outcome.samples !== undefined && `, ${count(outcome.samples, "sample")} read`}
        {outcome.notes?.map((note) => (
          <span key={note} class="note">
            {note}
          </span>
        ))}
      </p>
      {outcome.unknown?.map((one) => (
        <NoSuch key={one.name} unknown={one} onName={props.onName} />
      ))}
      <Cost query={text} cardinality={props.cardinality} />
    </>
  );
}

/** A metric that nothing has sent, and what may have been meant. */
function NoSuch({ unknown, onName }: { unknown: Unknown; onName: OnName }) {
  const { name, isOurs, near } = unknown;
  return (
    <p class="explore-wrong" role="status">
      {isOurs ? (
        <>
          <b>{name}</b> is a metric of the catalog, and nothing has sent it.
        </>
      ) : (
        <>
          No such metric: <b>{name}</b>.
        </>
      )}
      {near.length > 0 && " Did you mean "}
      {near.map((other, place) => (
        <span key={other}>
          {place > 0 && (place === near.length - 1 ? " or " : ", ")}
          <button type="button" class="plain link" onClick={() => onName(name, other)}>
            {other}
          </button>
        </span>
      ))}
      {near.length > 0 && "?"}
    </p>
  );
}

/** How many series each metric of the query has: asked for when the reader opens it. */
function Cost({ query, cardinality }: { query: string; cardinality: CardinalityOf }) {
  const names = metricsOf(query);
  const [found, setFound] = useState<ReadonlyMap<string, number> | string>();
  if (!names.length) return null;
  return (
    <details
      class="explore-cost soft"
      onToggle={(event) => {
        if (!event.currentTarget.open) return;
        cardinality(names).then(setFound, (error: Error) => setFound(error.message));
      }}
    >
      <summary>What it reads</summary>
      {typeof found === "string" ? (
        <p role="alert">{found}</p>
      ) : (
        <ul>
          {names.map((name) => (
            <li key={name}>
              <code>{name}</code>{" "}
              {found ? count(found.get(name) ?? 0, "series", "series") : "asking …"}
            </li>
          ))}
        </ul>
      )}
    </details>
  );
}

/** The service's error, and where the grammar sees it. */
function Wrong({ error, text, flaw }: { error: string; text: string; flaw: Flaw | undefined }) {
  const place = flaw && placed(text, flaw);
  return (
    <div class="explore-wrong" role="alert">
      <b>{plainError(error)}</b>
      {place && (
        <>
          <span>
            {" "}
            At {place.where}: {flaw.message}
          </span>
          <pre aria-hidden="true">
            {place.line}
            {"\n"}
            {place.pointer}
          </pre>
        </>
      )}
    </div>
  );
}
