/** What stands around every view: the menu, the time, whether news arrive, the keyboard's help. */
import type { ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { isPassOnly, isTokenAsked, useToken } from "./api/client";
import { stamp } from "./format";
import { freshness } from "./fresh";
import { isHelpShown } from "./keys";
import { connection, heardAt } from "./live";
import { markOf } from "./parts/fresh-words";
import { href, route } from "./route";
import { theme } from "./theme";
import { now, ticked } from "./time";
import { RangePicker } from "./ui/range";
import { Empty, Loading } from "./ui/states";
import { VIEWS, type View } from "./views/table";

function Menu({ current }: { current: View | undefined }) {
  return (
    <nav aria-label="Views">
      {VIEWS.filter((view) => view.isInMenu).map((view) => (
        <a
          key={view.word}
          href={href(view.word ? [view.word] : [])}
          aria-current={view === current ? "page" : undefined}
          title={`Keyboard: g ${view.key}`}
        >
          {view.label}
        </a>
      ))}
    </nav>
  );
}

/** In place of the word at the top right, where a notice's link opens one incident only. */
function LinkMark() {
  return (
    <button
      type="button"
      class="small"
      title="A notice's link opens one incident. A token opens the others, too."
      onClick={() => {
        isTokenAsked.value = true;
      }}
    >
      One incident only: enter a token …
    </button>
  );
}

function LiveMark() {
  const known = freshness.value;
  const { look, text, title } = markOf({
    connection: connection.value,
    quiet: heardAt.value ? ticked.value - heardAt.value : undefined,
    freshness: known?.told,
    passed: known ? Math.max(0, ticked.value - known.at) : 0,
  });
  return (
    <span class={`live ${look}`} role="status" title={title}>
      <i aria-hidden="true" />
      {text}
    </span>
  );
}

/** What day it is, and in which zone all times of the page are; without seconds, as the tick is coarser. */
function ZoneWords() {
  return <time>{stamp(now.value).replace(/:\d\d /, " ")}</time>;
}

function ClockNow() {
  return (
    <span class="clock-now" title="Times of this page are in this zone; Settings changes it">
      <ZoneWords />
    </span>
  );
}

function ThemeButton() {
  const next = theme.value === "dark" ? "light" : theme.value === "light" ? "system" : "dark";
  return (
    <button
      type="button"
      class="plain"
      title="Keyboard: t"
      onClick={() => {
        theme.value = next;
      }}
    >
      <span aria-hidden="true">◐</span>
      <span class="unseen">
        Colours: {theme.value}. Change to {next}.
      </span>
    </button>
  );
}

function TokenDialog() {
  const field = useRef<HTMLInputElement>(null);
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (isTokenAsked.value && !dialog.current?.open) dialog.current?.showModal();
    if (!isTokenAsked.value && dialog.current?.open) dialog.current.close();
  });
  if (!isTokenAsked.value) return null;
  return (
    <dialog ref={dialog} aria-labelledby="token-title">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          useToken(field.current?.value.trim() ?? "");
          location.reload();
        }}
      >
        <h2 id="token-title">This service asks for a token</h2>
        <p class="soft">It is kept in this tab and sent to this service only.</p>
        <label>
          Token <input ref={field} type="password" autocomplete="off" required />
        </label>
        <button type="submit">Go on</button>
      </form>
    </dialog>
  );
}

function Help() {
  if (!isHelpShown.value) return null;
  return (
    <aside class="help panel" aria-label="Keyboard">
      <h2>Keyboard</h2>
      <dl>
        {VIEWS.map((view) => (
          <div key={view.word}>
            <dt>
              <kbd>g</kbd> <kbd>{view.key}</kbd>
            </dt>
            <dd>{view.label}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>t</kbd>
          </dt>
          <dd>dark or light</dd>
        </div>
        <div>
          <dt>
            <kbd>?</kbd>
          </dt>
          <dd>this help</dd>
        </div>
      </dl>
      <button
        type="button"
        onClick={() => {
          isHelpShown.value = false;
        }}
      >
        Close
      </button>
    </aside>
  );
}

/** The view's code, when it has come. A page that is older than the service is asked to load anew. */
function Lazy({ view }: { view: View }) {
  const [loaded, setLoaded] = useState<{
    view: View;
    component?: ComponentType;
    isBroken?: boolean;
  }>();
  useEffect(() => {
    let isWanted = true;
    view.load().then(
      ({ default: component }) => isWanted && setLoaded({ view, component }),
      () => isWanted && setLoaded({ view, isBroken: true }),
    );
    return () => {
      isWanted = false;
    };
  }, [view]);
  if (loaded?.view !== view) return <Loading what="the view" />;
  if (!loaded.component)
    return (
      <Empty title="This part of the page could not be loaded">
        The service may have been updated.{" "}
        <button type="button" onClick={() => location.reload()}>
          Load the page anew
        </button>
      </Empty>
    );
  const Component = loaded.component;
  return <Component />;
}

export function Shell() {
  const word = route.value.path[0] ?? "";
  const view = VIEWS.find((one) => one.word === word);
  const title = view?.label ?? "Not found";
  useEffect(() => {
    document.title = `${title} · Fabricscope`;
  }, [title]);
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        To the content
      </button>
      <header class="top">
        <a class="brand" href="#/" aria-label="Fabricscope: now">
          <img src={new URL("./icon.svg", import.meta.url).href} alt="" width="22" height="22" />
          <span>Fabricscope</span>
        </a>
        <Menu current={view} />
        <div class="tools">
          {view?.hasRange && <RangePicker />}
          <ClockNow />
          {isPassOnly.value ? <LinkMark /> : <LiveMark />}
          <ThemeButton />
          <button
            type="button"
            class="plain"
            aria-label="Keyboard help"
            onClick={() => {
              isHelpShown.value = !isHelpShown.value;
            }}
          >
            ?
          </button>
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {view ? (
          <Lazy view={view} key={view.word} />
        ) : (
          <Empty title={`There is no view called "${word}"`}>
            <a href="#/">What is going on now</a>
          </Empty>
        )}
        <p class="phone-clock">
          <ZoneWords />
        </p>
      </main>
      <Help />
      <TokenDialog />
    </>
  );
}
