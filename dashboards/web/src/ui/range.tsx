/** Which time is looked at: the last while, following the clock, or a stretch that stands still. */
import { duration, moment } from "../format";
import { route } from "../route";
import { fix, follow, LAST_DEFAULT, LASTS, now, range, seconds } from "../time";

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
    </fieldset>
  );
}
