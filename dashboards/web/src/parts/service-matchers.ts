/** Matchers of a silence as text, as Prometheus writes them: `host="node1", gpu=~"[0-3]"`. Pure. */
import type { Matcher } from "../api/service";

const SIGNS: readonly (readonly [string, boolean, boolean])[] = [
  ["=", true, false],
  ["!=", false, false],
  ["=~", true, true],
  ["!~", false, true],
];

export function write(matcher: Matcher): string {
  const sign = SIGNS.find(
    ([, isEqual, isRegex]) => isEqual === matcher.isEqual && isRegex === matcher.isRegex,
  )?.[0];
  return `${matcher.name}${sign ?? "="}${JSON.stringify(matcher.value)}`;
}

/** What a text asks for, or in words why it cannot be read. Braces around it may be there. */
export function read(text: string): readonly Matcher[] | string {
  let rest = text.trim().replace(/^\{/, "").replace(/\}$/, "").trim();
  const found: Matcher[] = [];
  while (rest) {
    const match =
      /^([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))\s*(?:,\s*|$)/.exec(
        rest,
      );
    if (!match) return `Cannot read ${rest.slice(0, 60)}: write label="value", label=~"pattern", …`;
    const [whole, name = "", sign = "=", quoted, bare] = match;
    const [, isEqual, isRegex] = SIGNS.find(([one]) => one === sign) ?? ["=", true, false];
    found.push({
      name,
      value: quoted === undefined ? (bare ?? "") : unquoted(quoted),
      isRegex,
      isEqual,
    });
    rest = rest.slice(whole.length);
  }
  return found.length ? found : 'Name at least one label, such as host="node1"';
}

/** A person who writes a pattern may not double its backslashes: then they stand for themselves. */
function unquoted(text: string): string {
  try {
    return JSON.parse(`"${text}"`) as string;
  } catch {
    return text;
  }
}

/** Matchers that meet exactly the alerts with these labels, without those that only describe the rule. */
export function matchersOf(labels: Readonly<Record<string, string>>): readonly Matcher[] {
  const aside = new Set(["severity", "owner", "scope", "theme"]);
  return Object.entries(labels)
    .filter(([name]) => !aside.has(name))
    .map(([name, value]) => ({ name, value, isRegex: false, isEqual: true }));
}
