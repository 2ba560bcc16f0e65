/** A name that is none: what may have been meant, each a click away. */
import { nearest } from "./explore-names";

export function DidYouMean(props: { near: readonly string[]; onName: (name: string) => void }) {
  const { near } = props;
  if (!near.length) return null;
  return (
    <>
      {" Did you mean "}
      {near.map((name, place) => (
        <span key={name}>
          {place > 0 && (place === near.length - 1 ? " or " : ", ")}
          <button type="button" class="plain link" onClick={() => props.onName(name)}>
            {name}
          </button>
        </span>
      ))}
      ?
    </>
  );
}

export function NoSuchName(props: {
  kind: string;
  name: string;
  among: Iterable<string>;
  onName: (name: string) => void;
}) {
  return (
    <p class="state stale" role="status">
      No {props.kind} is called {props.name}.
      <DidYouMean near={nearest(props.name, props.among)} onName={props.onName} />
    </p>
  );
}
