/** Dark, light, or as the reader's system is; and the colours for what is drawn on a canvas. */
import { effect, signal } from "@preact/signals";
import { storage } from "./storage";

export type Theme = "system" | "light" | "dark";
const KEY = "fabricscope.theme";

function kept(): Theme {
  const word = storage?.getItem(KEY);
  return word === "light" || word === "dark" ? word : "system";
}

export const theme = signal<Theme>(kept());
const system = matchMedia("(prefers-color-scheme: dark)");
/** Moves whenever colours change: canvases draw again. */
export const isDark = signal(false);

effect(() => {
  storage?.setItem(KEY, theme.value);
  isDark.value = theme.value === "dark" || (theme.value === "system" && system.matches);
  document.documentElement.dataset.theme = isDark.value ? "dark" : "light";
});
system.addEventListener("change", () => {
  if (theme.value === "system") {
    isDark.value = system.matches;
    document.documentElement.dataset.theme = isDark.value ? "dark" : "light";
  }
});

/** A colour of the style sheet: `ink`, `soft`, `rule`, `bad`, `s1`… */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Colours of lines, neighbours far apart. */
export function lineColour(index: number): string {
  return colour(`s${(index % 8) + 1}`);
}

/**
 * From 0 (nothing) to 1 (all): a ramp that people who see no red or green can read too, and that grows
 * darker on light ground and brighter on dark ground. Returns [red, green, blue], 0..255.
 */
export function ramp(share: number, dark = isDark.value): readonly [number, number, number] {
  const stops = dark ? DARK : LIGHT;
  const place = Math.min(1, Math.max(0, share)) * (stops.length - 1);
  const below = Math.min(stops.length - 2, Math.floor(place));
  const [a, b] = [stops[below] ?? [0, 0, 0], stops[below + 1] ?? [0, 0, 0]];
  const mix = (one: number, other: number) => Math.round(one + (other - one) * (place - below));
  return [mix(a[0], b[0]), mix(a[1], b[1]), mix(a[2], b[2])];
}

type Stop = readonly [number, number, number];
const LIGHT: readonly Stop[] = [
  [233, 238, 244],
  [250, 218, 150],
  [240, 150, 70],
  [205, 62, 52],
  [122, 20, 60],
];
const DARK: readonly Stop[] = [
  [30, 38, 49],
  [92, 66, 44],
  [190, 102, 42],
  [240, 101, 92],
  [255, 214, 190],
];
