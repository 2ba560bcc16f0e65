/** What `fabricscope diagnose --html` puts into a report (api/diagnose/page_data.py). Times are unix seconds. */
import type { CauseTable } from "../api/causes";
import { floats } from "../api/client";
import type { Heat, HeatRank } from "../api/heat";
import type { Verdict } from "../api/incidents";
import type { StepsCompared } from "../api/steps";
import type { DotSet } from "../parts/timeline-dots";

export interface Stretch {
  readonly start: number;
  readonly end: number;
}

export interface TableData {
  readonly title: string;
  readonly explanation: string;
  readonly columns: readonly { readonly name: string; readonly is_number: boolean }[];
  readonly rows: readonly { readonly cells: readonly string[]; readonly is_marked: boolean }[];
}

export interface Dots {
  readonly kind: "dots";
  readonly sets: readonly DotSet[];
  /** Seconds. */
  readonly low: number;
  readonly high: number;
  readonly is_log: boolean;
}

export interface BarsData {
  readonly kind: "bars";
  readonly bars: readonly {
    readonly label: string;
    readonly short: string;
    readonly value: number;
    readonly is_culprit: boolean;
  }[];
  readonly unit: string;
}

export interface LineData {
  readonly label: string;
  readonly values: readonly (number | null)[];
  readonly is_culprit: boolean;
}

export interface LinesData {
  readonly kind: "lines";
  readonly times: readonly number[];
  readonly lines: readonly LineData[];
  readonly peers: number;
}

export interface FigureData {
  readonly title: string;
  readonly explanation: string;
  /** The place of the evidence that it stands beside; null: it stands alone. */
  readonly evidence: number | null;
  readonly drawing: Dots | BarsData | LinesData;
}

export interface VerdictData {
  readonly verdict: Verdict;
  readonly when: string;
  readonly costs: readonly string[];
  readonly clock: string;
  readonly shown: Stretch;
  readonly blamed: Stretch;
  readonly figures: readonly FigureData[];
  readonly steps: StepsCompared | null;
}

export interface StepBars {
  readonly spans: readonly Stretch[];
  /** Seconds of compute, transfer and wait. */
  readonly parts: readonly (readonly [number, number, number])[];
  readonly said: readonly string[];
  readonly top: number;
  readonly note: string;
}

export interface HeatData {
  readonly ranks: readonly HeatRank[];
  readonly ranks_left_out: number;
  readonly columns: readonly Stretch[];
  readonly steps_in_one: number;
  readonly is_by_step: boolean;
  readonly values: string;
}

export interface ReadingPanel {
  readonly title: string;
  readonly explanation: string;
  readonly unit: string;
  readonly times: readonly number[];
  readonly lines: readonly LineData[];
  readonly middles: readonly number[];
  readonly mosts: readonly number[];
}

export interface JobData {
  readonly job: string;
  readonly explanation: string;
  readonly facts: readonly (readonly [string, string])[];
  readonly span: Stretch;
  readonly accused: readonly number[];
  readonly pending: TableData | null;
  readonly steps: StepBars | null;
  readonly heat: HeatData | null;
  readonly collectives: readonly {
    readonly title: string;
    readonly explanation: string;
    readonly dots: Dots;
  }[];
  readonly collectives_note: string;
  readonly readings: readonly ReadingPanel[];
  readonly tables: readonly TableData[];
}

export interface ReportData {
  readonly causes: CauseTable;
  readonly about: string;
  readonly ranks_read: readonly string[];
  readonly verdicts: readonly VerdictData[];
  readonly verdicts_note: string;
  readonly unclear: readonly string[];
  readonly looked: readonly string[];
  readonly failed: readonly string[];
  readonly jobs: readonly JobData[];
  readonly warnings: TableData | null;
  readonly read: TableData;
  readonly problems: readonly {
    readonly title: string;
    readonly files: readonly (readonly [string, string])[];
  }[];
}

/** As the page's own heat map takes it. */
export function heatOf(data: HeatData): Heat {
  return {
    quantity: "late",
    ranks: data.ranks,
    steps: data.columns.map(({ start, end }) => ({ from: start, to: end })),
    stepsInOne: data.steps_in_one,
    values: floats(data.values),
  };
}
