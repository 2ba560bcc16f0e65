/** Where a roll-out stands and what may be done with it, in words. Pure. */
import type { AgentState, Configuration, Rollout, RolloutState } from "../api/configurations";

interface StateWords {
  readonly title: string;
  readonly meaning: string;
  readonly tone: "" | "bad" | "warn" | "good";
}

export const STATES: Readonly<Record<RolloutState, StateWords>> = {
  rolling: {
    title: "rolls out",
    meaning:
      "Agents in its share try it; when all of them that report call it good, the next share is told.",
    tone: "",
  },
  waiting: {
    title: "waits for a person",
    meaning: "Its last share is good and below 100 %: a person says how it goes on.",
    tone: "warn",
  },
  stopped: {
    title: "stopped",
    meaning: "No other agent gets it; those that have it keep it.",
    tone: "bad",
  },
  done: { title: "done", meaning: "All agents that report have called it good.", tone: "good" },
  back: {
    title: "taken back",
    meaning: "All agents go back to what they ran before, with their next batches.",
    tone: "warn",
  },
};

interface AgentWords {
  readonly title: string;
  readonly meaning: string;
  readonly tone: "" | "bad" | "warn" | "good";
}

/** From what an operator must see to what needs no person. */
export const AGENT_STATES: Readonly<Record<AgentState, AgentWords>> = {
  failed: {
    title: "went back",
    meaning:
      "Something newly failed in the trial; they run their last good configuration and do not try this one again.",
    tone: "bad",
  },
  trying: { title: "try it", meaning: "Their time of trial is not over.", tone: "warn" },
  pending: {
    title: "told",
    meaning: "In its share and reporting; they have not taken it yet.",
    tone: "",
  },
  good: { title: "kept it", meaning: "They tried it, and call it good.", tone: "good" },
  not_yet: {
    title: "down",
    meaning: "In its share and silent: they get it when they come back, and hold nothing up.",
    tone: "",
  },
  outside: {
    title: "not meant",
    meaning: "Outside of its share, or of a roll-out that ended.",
    tone: "",
  },
};

export const AGENT_ORDER = Object.keys(AGENT_STATES) as readonly AgentState[];

/** `25 % of agents, the second of 5 %, 25 %, 100 %`. */
export function shareWords({ shares, stage }: Rollout): string {
  const reached = `${shares[stage]} % of the agents that take part`;
  if (shares.length < 2) return reached;
  return `${reached}: step ${stage + 1} of ${shares.map((one) => `${one} %`).join(", ")}`;
}

export function versionWords(version: number): string {
  return version === 0 ? "the hosts' own files" : `version ${version}`;
}

/** Whether its figures can change by themselves. Where nothing moves nothing is asked again. */
export function isMoving(one: Configuration | undefined): boolean {
  if (!one) return false;
  const { state } = one.version.rollout;
  const { trying = 0, pending = 0 } = one.hosts;
  return state === "rolling" || state === "waiting" || trying > 0 || pending > 0;
}

export type Order = "push" | "stop" | "resume" | "back";

/** What its state allows; the service has the last word. Undefined: nothing was ever pushed. */
export function ordersOf(state: RolloutState | undefined): readonly Order[] {
  switch (state) {
    case "rolling":
      return ["stop", "back"];
    case "waiting":
      return ["resume", "stop", "back"];
    case "stopped":
      return ["resume", "back", "push"];
    case "done":
      return ["back", "push"];
    default:
      return ["push"];
  }
}

/** The scope of a token that an order needs. */
export const ORDER_SCOPES: Readonly<Record<Order, "operate" | "admin">> = {
  stop: "operate",
  back: "operate",
  push: "admin",
  resume: "admin",
};

export const ORDER_COMMANDS: Readonly<Record<Order, string>> = {
  push: "fabricscope config push FILE --why WHY",
  stop: "fabricscope config stop --why WHY",
  resume: "fabricscope config resume",
  back: "fabricscope config back --why WHY",
};

/** What a resume begins with: the shares that are not done, and all agents where none is left. */
export function sharesLeft({ shares, stage, state }: Rollout): readonly number[] {
  const left = shares.slice(state === "waiting" ? stage + 1 : stage);
  return left.length ? left : [100];
}

/** Percents that grow, of `5, 25, 100`; or what is wrong with them. `least`: what is reached already. */
export function readShares(text: string, least = 0): readonly number[] | string {
  const words = text.split(/[\s,%]+/).filter(Boolean);
  const shares = words.map(Number);
  if (!shares.length) return "Enter shares in percent, such as 5, 25, 100.";
  if (!shares.every((one) => one > 0 && one <= 100))
    return "Each share is a percentage above 0 and at most 100.";
  if (shares.some((one, place) => place > 0 && one <= (shares[place - 1] ?? 0)))
    return "Each share must be above the one before.";
  if ((shares[0] ?? 0) < least) return `${least} % are reached: begin with that or more.`;
  return shares;
}

export const writeShares = (shares: readonly number[]): string => shares.join(", ");

/** A whole number within bounds; undefined for what is none. */
export function readWhole(text: string, least: number, most: number): number | undefined {
  const number = Number(text);
  return text.trim() && Number.isInteger(number) && number >= least && number <= most
    ? number
    : undefined;
}
