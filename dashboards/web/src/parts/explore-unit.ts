/**
 * The unit of what a query gives, from the catalog. Only where it is sure: a metric, rates of one, sums and the
 * like, and what only chooses among series. Arithmetic has none. Pure.
 */
import type { Metric } from "../api/metadata";
import { digits, duration, moment, percent, si } from "../format";

/** `time` is a moment, in unix seconds; `per_second` counts; undefined: not known. */
export type Unit = string | undefined;

interface Known {
  readonly unit: Unit;
  /** Of a histogram's buckets: the unit of what was observed. */
  readonly observed?: Unit;
}
const NOTHING: Known = { unit: undefined };

/** What a function or aggregation does to the unit of its vector, and which argument that is. */
type Rule = readonly [effect: "same" | "rate" | "observed", argument: number];
const SAME: Rule = ["same", 0];
const RULES: Readonly<Record<string, Rule>> = {
  ...rules(["rate", 0], "rate", "irate", "deriv"),
  ...rules(SAME, "increase", "delta", "idelta", "avg_over_time", "min_over_time", "max_over_time"),
  ...rules(SAME, "last_over_time", "first_over_time", "stddev_over_time", "predict_linear"),
  ...rules(SAME, "abs", "ceil", "floor", "round", "clamp", "clamp_min", "clamp_max", "sort"),
  ...rules(SAME, "sort_desc", "sort_by_label", "label_replace", "label_join", "sum", "avg"),
  ...rules(SAME, "min", "max", "stddev"),
  ...rules(["same", 1], "topk", "bottomk", "quantile", "limitk", "quantile_over_time"),
  histogram_quantile: ["observed", 1],
};

function rules(rule: Rule, ...names: string[]): Record<string, Rule> {
  return Object.fromEntries(names.map((name) => [name, rule]));
}

export function unitOf(query: string, find: (name: string) => Metric | undefined): Unit {
  const reader = new Reader(tokens(query), find);
  const { unit } = reader.expression();
  return reader.isAtEnd ? unit : undefined;
}

const TOKEN =
  /#[^\n]*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`|[A-Za-z_:][\w:]*|\d[\w.]*|==|!=|>=|<=|=~|!~|\S/g;

/** Its words and signs; comments are left out. */
export function tokens(query: string): string[] {
  return (query.match(TOKEN) ?? []).filter((token) => !token.startsWith("#"));
}

const NAME = /^[A-Za-z_:]/;
const KEEPS_LEFT = new Set([">", "<", ">=", "<=", "==", "!=", "and", "or", "unless"]);
const COMPARES = new Set([">", "<", ">=", "<=", "==", "!="]);
const OPENING: Readonly<Record<string, string>> = { "(": ")", "[": "]", "{": "}" };

/** Brackets in brackets; a text from outside must not use up the stack. */
const DEPTH_MAX = 600;

class Reader {
  private place = 0;
  private depth = 0;

  constructor(
    private readonly words: readonly string[],
    private readonly find: (name: string) => Metric | undefined,
  ) {}

  get isAtEnd(): boolean {
    return this.place >= this.words.length;
  }

  private word(): string {
    return this.words[this.place] ?? "";
  }

  /** One operand, or several: those that only choose among the left one's series keep its unit. */
  expression(): Known {
    if (++this.depth > DEPTH_MAX) this.place = this.words.length;
    const known = this.operands();
    this.depth--;
    return known;
  }

  private operands(): Known {
    let left = this.operand();
    while (!this.isAtEnd && this.word() !== ")" && this.word() !== ",") {
      const operator = this.word().toLowerCase();
      this.place++;
      const isBool = COMPARES.has(operator) && this.word().toLowerCase() === "bool";
      if (isBool) this.place++;
      this.matching();
      this.operand();
      left = KEEPS_LEFT.has(operator) && !isBool ? left : NOTHING;
    }
    return left;
  }

  /** `on (host) group_left (rack)`: no effect on units. */
  private matching(): void {
    while (["on", "ignoring", "group_left", "group_right"].includes(this.word().toLowerCase())) {
      this.place++;
      if (this.word() === "(") this.skip();
    }
  }

  private operand(): Known {
    while (this.word() === "-" || this.word() === "+") this.place++;
    const known = this.bare();
    this.modifiers();
    return known;
  }

  private bare(): Known {
    const first = this.word();
    if (first === "(") {
      this.place++;
      const inner = this.expression();
      this.place++;
      return inner;
    }
    if (first === "{") {
      const name = this.nameWithin();
      this.skip();
      return this.metric(name);
    }
    this.place++;
    if (!NAME.test(first)) return NOTHING;
    const next = this.word().toLowerCase();
    if (next === "(" || next === "by" || next === "without") return this.call(first.toLowerCase());
    if (this.word() === "{") this.skip();
    return this.metric(first);
  }

  private call(name: string): Known {
    this.grouping();
    const given: Known[] = [];
    this.place++;
    while (!this.isAtEnd && this.word() !== ")") {
      given.push(this.expression());
      if (this.word() === ",") this.place++;
    }
    this.place++;
    this.grouping();
    const rule = RULES[name];
    const known = rule && given[rule[1]];
    if (!rule || !known) return NOTHING;
    if (rule[0] === "observed") return { unit: known.observed };
    if (rule[0] === "same") return known;
    return { unit: perSecond(known.unit), observed: known.observed };
  }

  private grouping(): void {
    if (!["by", "without"].includes(this.word().toLowerCase())) return;
    this.place++;
    if (this.word() === "(") this.skip();
  }

  /** `[5m]`, `offset 1h`, `@ end()`: when, and not what. */
  private modifiers(): void {
    for (;;) {
      if (this.word() === "[") this.skip();
      else if (this.word().toLowerCase() === "offset") {
        this.place++;
        while (this.word() === "-" || this.word() === "+") this.place++;
        this.place++;
      } else if (this.word() === "@") {
        this.place += 2;
        if (this.word() === "(") this.skip();
      } else return;
    }
  }

  /** Past a bracket and all that is in it. */
  private skip(): void {
    const open: string[] = [];
    do {
      const closing = OPENING[this.word()];
      if (closing) open.push(closing);
      else if (this.word() === open.at(-1)) open.pop();
      this.place++;
    } while (open.length && !this.isAtEnd);
  }

  /** The name in `{__name__="x"}` or `{"x"}`. */
  private nameWithin(): string {
    const end = this.words.indexOf("}", this.place);
    const inside = this.words.slice(this.place + 1, end < 0 ? undefined : end);
    const label = inside.indexOf("__name__");
    const text = label >= 0 && inside[label + 1] === "=" ? inside[label + 2] : inside[0];
    return text && /^["'`]/.test(text) ? text.slice(1, -1) : "";
  }

  private metric(name: string): Known {
    const metric = this.find(name);
    if (metric?.kind === "gauge" && /_time(stamp)?_seconds$/.test(metric.name))
      return { unit: "time" };
    if (metric) return { unit: metric.kind === "histogram" ? undefined : metric.unit };
    const [, base = "", part] = /^(.*)_(bucket|sum|count)$/.exec(name) ?? [];
    const histogram = this.find(base);
    if (histogram?.kind !== "histogram") return NOTHING;
    if (part === "sum") return { unit: histogram.unit };
    return part === "bucket" ? { unit: "", observed: histogram.unit } : { unit: "" };
  }
}

const PER_SECOND: Readonly<Record<string, string>> = {
  "": "per_second",
  bytes: "bytes_per_second",
  packets: "packets_per_second",
  joules: "watts",
  seconds: "ratio",
};

function perSecond(unit: Unit): Unit {
  return unit === undefined ? undefined : PER_SECOND[unit];
}

const SI_UNITS: Readonly<Record<string, string>> = {
  "": "",
  bytes: "B",
  bytes_per_second: "B/s",
  bits_per_second: "bit/s",
  packets: "packets",
  packets_per_second: "packets/s",
  per_second: "/s",
  hertz: "Hz",
  watts: "W",
  joules: "J",
  volts: "V",
  amperes: "A",
};

/** A number as it is read in this unit. */
export function formatOf(unit: Unit): (value: number) => string {
  if (unit === "seconds") return finite(duration);
  if (unit === "ratio") return finite(percent);
  if (unit === "celsius") return finite((value) => `${digits(value)} °C`);
  if (unit === "time") return finite((value) => moment(value));
  const sign = SI_UNITS[unit ?? ""];
  return finite((value) =>
    Math.abs(value) < 1 ? `${digits(value)} ${sign ?? ""}`.trimEnd() : si(value, sign ?? ""),
  );
}

/** `+Inf` and NaN are answers, too. */
function finite(format: (value: number) => string): (value: number) => string {
  return (value) =>
    Number.isFinite(value)
      ? format(value)
      : Number.isNaN(value)
        ? "NaN"
        : value > 0
          ? "+Inf"
          : "−Inf";
}

/** The unit in words, for a heading; empty for plain numbers. */
export function unitWords(unit: Unit): string {
  if (!unit) return "";
  return (
    { time: "moment", ratio: "share", per_second: "per second" }[unit] ?? unit.replaceAll("_", " ")
  );
}

/** All names that metrics have, ours and other exporters'; theirs have our unit only if numbers are the same. */
export function finder(catalog: readonly Metric[]): (name: string) => Metric | undefined {
  const known = new Map<string, Metric>();
  for (const metric of catalog)
    for (const alias of metric.aliases) if (alias.factor === 1) known.set(alias.name, metric);
  for (const metric of catalog) known.set(metric.name, metric);
  return (name) => known.get(name);
}
