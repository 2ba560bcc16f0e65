/** What this browser remembers of its reader; nothing of it is sent to the service. */
import { Fragment } from "preact";
import { useState } from "preact/hooks";
import { token, useToken } from "../api/client";
import { moment } from "../format";
import { keepPrice, priceText } from "../price";
import { type Theme, theme } from "../theme";
import { Panel } from "../ui/panel";
import { chooseZone, type Zone, zone } from "../zone";
import { money, parsePrice } from "./verdict-cost";
import "../style/settings.css";

/** Who silences and drains, so that it is typed once. */
const NAME_KEY = "fabricscope.name";

export function ownName(): string {
  return localStorage.getItem(NAME_KEY) ?? "";
}

export function keepName(name: string): void {
  if (name) localStorage.setItem(NAME_KEY, name);
  else localStorage.removeItem(NAME_KEY);
}

function Choice<Word extends string>(props: {
  legend: string;
  value: Word;
  words: Readonly<Record<Word, string>>;
  onChoose: (word: Word) => void;
}) {
  return (
    <fieldset class="choice">
      <legend>{props.legend}</legend>
      {(Object.entries(props.words) as [Word, string][]).map(([word, text]) => (
        <label key={word} class="check">
          <input
            type="radio"
            name={props.legend}
            checked={props.value === word}
            onChange={() => props.onChoose(word)}
          />
          {text}
        </label>
      ))}
    </fieldset>
  );
}

function PriceField() {
  const [text, setText] = useState(priceText);
  const price = parsePrice(text);
  const isWrong = text.trim() !== "" && !price;
  return (
    <fieldset class="choice">
      <legend>Price of a GPU-hour</legend>
      <input
        aria-label="Price of a GPU-hour"
        aria-invalid={isWrong}
        value={text}
        placeholder="none, or such as $2.50"
        maxLength={30}
        onInput={(event) => {
          const typed = event.currentTarget.value;
          setText(typed);
          keepPrice(typed);
        }}
      />
      <span class="soft">
        {isWrong
          ? "Write a number above 0, with your currency or without: $2.50, 2.10 €."
          : price
            ? `With it incidents show their cost: 1,000 GPU-hours are ${money(1000, price)}.`
            : "With it incidents show their cost."}
      </span>
    </fieldset>
  );
}

function Name() {
  const [name, setName] = useState(ownName());
  return (
    <fieldset class="choice">
      <legend>Your name</legend>
      <input
        aria-label="Your name"
        autocomplete="username"
        maxLength={200}
        value={name}
        onInput={(event) => {
          setName(event.currentTarget.value);
          keepName(event.currentTarget.value.trim());
        }}
      />
      <span class="soft">Stands in silences and drains that you make.</span>
    </fieldset>
  );
}

export function Preferences({ now }: { now: number }) {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return (
    <Panel title="This browser" hint="Kept here, for you alone">
      <div class="choices">
        <Choice<Theme>
          legend="Colours"
          value={theme.value}
          words={{ system: "as the system", light: "light", dark: "dark" }}
          onChoose={(word) => {
            theme.value = word;
          }}
        />
        <Choice<Zone>
          legend="Times"
          value={zone.value}
          words={{ local: `${own}, as this browser`, utc: "UTC, as most logs" }}
          onChoose={chooseZone}
        />
        <PriceField />
        <Name />
        <fieldset class="choice">
          <legend>Token</legend>
          {token.value ? (
            <>
              <span>One is kept for this tab.</span>
              <button
                type="button"
                onClick={() => {
                  useToken("");
                  location.reload();
                }}
              >
                Forget it
              </button>
            </>
          ) : (
            <span class="soft">None. The page asks when the service wants one.</span>
          )}
        </fieldset>
      </div>
      <p class="soft">It is {moment(now, 0)} now.</p>
    </Panel>
  );
}

const WAYS: readonly (readonly [string, string, string])[] = [
  ["/docs", "The HTTP interface", "every path, try it in place"],
  ["/runbooks", "Runbooks", "what to do about each alert"],
  ["/metrics", "Metrics", "of this process, for a Prometheus to scrape"],
  ["/openapi.json", "OpenAPI", "the interface for programs"],
  ["/v1/catalog", "Catalog", "every metric: meaning, unit, labels, others' names for it"],
  ["/v1/causes", "Causes", "every cause and reason of verdicts, in words"],
];

export function ServiceLinks() {
  return (
    <Panel title="More about this service">
      <dl class="ways">
        {WAYS.map(([address, name, about]) => (
          <Fragment key={address}>
            <dt>
              <a href={address}>{name}</a>
            </dt>
            <dd>{about}</dd>
          </Fragment>
        ))}
      </dl>
    </Panel>
  );
}
