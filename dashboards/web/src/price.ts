/** What an hour of a GPU costs, as entered in Settings and kept in this browser. */
import { type Price, parsePrice } from "./parts/verdict-cost";

const KEY = "fabricscope.gpu-hour-price";

export function priceText(): string {
  return localStorage.getItem(KEY) ?? "";
}

export function keptPrice(): Price | undefined {
  return parsePrice(priceText());
}

/** Keep it, or forget it where the text is no price. */
export function keepPrice(text: string): void {
  if (parsePrice(text)) localStorage.setItem(KEY, text.trim());
  else localStorage.removeItem(KEY);
}
