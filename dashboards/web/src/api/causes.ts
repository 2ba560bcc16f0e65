/** Causes and reasons for people, as `/v1/causes` and reports of `diagnose` have them. */
import { ask } from "./client";

export interface CauseWords {
  readonly name: string;
  readonly title: string;
  /** For readers who meet the word the first time. */
  readonly meaning: string;
  /** Causes that better evidence turns into each other: `rank`, `link`, `stuck`. */
  readonly family: string;
  readonly runbook: string;
  /** By reason, where both together have a page of their own. */
  readonly runbooks: Readonly<Record<string, string>>;
  /** A colour of the style sheet, without the dashes. */
  readonly colour: string;
  /** What it shows in on the drawing of the fabric; empty: in what links carry. */
  readonly drawn_by: string;
}

export interface ReasonWords {
  readonly name: string;
  readonly title: string;
  /** Empty: that of the cause. */
  readonly runbook: string;
}

export interface CauseTable {
  readonly causes: readonly CauseWords[];
  readonly reasons: readonly ReasonWords[];
}

export async function askCauses(): Promise<CauseTable> {
  return ask<CauseTable>("/v1/causes");
}
