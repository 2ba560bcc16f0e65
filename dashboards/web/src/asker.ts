/**
 * One question at a time, each to its end. A service that answers slower than the page's pulse must
 * still be heard: a pulse that comes while a question is under way waits for the answer and asks then.
 * Only another question takes the place of the one under way, because its answer is no longer wanted.
 */
import { Failure } from "./api/client";

/** Longer than the service's own bounds on a question; past it the line is dead, not slow. */
export const ANSWER_SECONDS_MAX = 180;

export interface Told<T> {
  /** A question was sent. */
  readonly begun: () => void;
  readonly answered: (data: T) => void;
  readonly failed: (failure: Failure) => void;
}

export class Asker<T> {
  private question = "";
  private abort: AbortController | undefined;
  private isDue = false;

  constructor(
    private readonly load: (abort: AbortSignal) => Promise<T>,
    private readonly told: Told<T>,
    private readonly secondsMax = ANSWER_SECONDS_MAX,
  ) {}

  /** Ask this; the same as the one under way is asked again when that one has ended. */
  ask(question: string): void {
    if (this.abort && question === this.question) {
      this.isDue = true;
      return;
    }
    this.stop();
    this.question = question;
    void this.run();
  }

  /** No answer is wanted any more. */
  stop(): void {
    this.abort?.abort();
    this.abort = undefined;
    this.isDue = false;
  }

  private async run(): Promise<void> {
    const abort = new AbortController();
    this.abort = abort;
    this.isDue = false;
    try {
      const answer = this.load(abort.signal);
      this.told.begun();
      const data = await inTime(answer, this.secondsMax);
      if (!abort.signal.aborted) this.told.answered(data);
    } catch (error) {
      if (!abort.signal.aborted) this.told.failed(failureOf(error));
    }
    if (this.abort !== abort) return;
    // Also ends what is left of a question of several requests, of which one failed or was too late.
    abort.abort();
    this.abort = undefined;
    if (this.isDue) void this.run();
  }
}

async function inTime<T>(answer: Promise<T>, seconds: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Failure(0, "The service does not answer", `No answer within ${seconds} s.`)),
      seconds * 1000,
    );
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}

function failureOf(error: unknown): Failure {
  return error instanceof Failure
    ? error
    : new Failure(-1, "The page made a mistake", String(error));
}
