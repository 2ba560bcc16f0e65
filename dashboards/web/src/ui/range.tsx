/** Which time is looked at: the last while, following the clock, or a stretch that stands still. */
import { useRef, useState } from "preact/hooks";
import { duration, moment } from "../format";
import { route } from "../route";
import { fix, follow, LAST_DEFAULT, LASTS, now, range, seconds } from "../time";
import { HINT, typedTime, writtenTime } from "../typed-time";

export function RangePicker() {
  const { from, to, last } = range.value;
  const word = route.value.query.last ?? LAST_DEFAULT;
  const length = to - from;
  return (
    <fieldset class="range" aria-label="Time">
      <button
        type="button"
        aria-label="Earlier"
        title="Earlier"
        onClick={() => fix(from - length / 2, to - length / 2)}
      >
        ‹
      </button>
      <select
        aria-label="Time range"
        value={last === undefined ? "fixed" : word}
        onChange={(event) => {
          if (event.currentTarget.value !== "fixed") follow(event.currentTarget.value);
        }}
      >
        {last === undefined && (
          <option value="fixed">
            {moment(from, now.value)} + {duration(length)}
          </option>
        )}
        {LASTS.map((one) => (
          <option key={one} value={one}>
            last {duration(seconds(one))}
          </option>
        ))}
        {last !== undefined && !(LASTS as readonly string[]).includes(word) && (
          <option value={word}>last {word}</option>
        )}
      </select>
      <button
        type="button"
        aria-label="Later"
        title="Later"
        disabled={last !== undefined}
        onClick={() => fix(from + length / 2, to + length / 2)}
      >
        ›
      </button>
      <TypedRange from={from} to={to} />
    </fieldset>
  );
}

/** From when to when, written by hand. */
function TypedRange({ from, to }: { from: number; to: number }) {
  const [isOpen, setOpen] = useState(false);
  const [refusal, setRefusal] = useState("");
  const fields = useRef<HTMLFormElement>(null);
  const apply = (event: Event) => {
    event.preventDefault();
    const given = new FormData(fields.current ?? undefined);
    const [begin, end] = ["from", "to"].map((name) =>
      typedTime(String(given.get(name) ?? ""), now.value),
    );
    if (begin === undefined) setRefusal(`"From" is no time. Write ${HINT}.`);
    else if (end === undefined) setRefusal(`"To" is no time. Write ${HINT}.`);
    else if (begin >= end) setRefusal('"From" is not before "To".');
    else {
      setRefusal("");
      setOpen(false);
      fix(begin, end);
    }
  };
  return (
    <div class="range-typed">
      <button
        type="button"
        aria-expanded={isOpen}
        aria-label="Type a time range"
        title="Type a time range"
        onClick={() => setOpen(!isOpen)}
      >
        <span aria-hidden="true">⋯</span>
      </button>
      {isOpen && (
        <form
          class="panel"
          ref={fields}
          aria-label="Time range"
          onSubmit={apply}
          onKeyDown={(event) => {
            if (event.key === "Escape") setOpen(false);
          }}
        >
          <label>
            From <input name="from" autocomplete="off" defaultValue={writtenTime(from)} />
          </label>
          <label>
            To <input name="to" autocomplete="off" defaultValue={writtenTime(to)} />
          </label>
          <small class="soft">{HINT}</small>
          {refusal && <p role="alert">{refusal}</p>}
          <button type="submit" class="primary">
            Show
          </button>
        </form>
      )}
    </div>
  );
}
