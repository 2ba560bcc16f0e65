/** The keyboard: `g` and a letter goes to a view, `?` lists the keys. Ignored while the reader types. */
import { signal } from "@preact/signals";
import { go, href } from "./route";
import { theme } from "./theme";
import { VIEWS } from "./views/table";

export const isHelpShown = signal(false);
let isGoing = false;

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    target.closest("input, textarea, select, [contenteditable], .cm-editor") !== null
  );
}

export function onKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  const { key } = event;
  if (isGoing) {
    isGoing = false;
    const view = VIEWS.find((one) => one.key === key);
    if (view) {
      go(href(view.word ? [view.word] : []));
      event.preventDefault();
    }
  } else if (key === "g") isGoing = true;
  else if (key === "?") isHelpShown.value = !isHelpShown.value;
  else if (key === "Escape") isHelpShown.value = false;
  else if (key === "t")
    theme.value = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
}
