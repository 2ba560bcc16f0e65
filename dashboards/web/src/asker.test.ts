import { describe, expect, it, vi } from "vitest";

vi.stubGlobal("sessionStorage", { getItem: () => null, setItem: () => undefined });
const { Asker } = await import("./asker");
const { Failure } = await import("./api/client");

/** Questions as they were sent, each answered by hand. */
function stand(secondsMax?: number) {
  const sent: {
    answer: (data: string) => void;
    fail: (error: unknown) => void;
    abort: AbortSignal;
  }[] = [];
  const heard: string[] = [];
  const asker = new Asker<string>(
    (abort) =>
      new Promise((resolve, reject) => {
        sent.push({ answer: resolve, fail: reject, abort });
      }),
    {
      begun: () => heard.push("begun"),
      answered: (data) => heard.push(data),
      failed: (failure) => heard.push(`failed: ${failure.detail || failure.title}`),
    },
    secondsMax,
  );
  const settled = () => new Promise((resolve) => setTimeout(resolve));
  return { asker, sent, heard, settled };
}

describe("asking", () => {
  it("lets a question end, whatever pulses come, and asks once more then", async () => {
    const { asker, sent, heard, settled } = stand();
    for (let pulse = 0; pulse < 5; pulse++) asker.ask("fabric");
    expect(sent.length).toBe(1);
    expect(sent[0]?.abort.aborted).toBe(false);
    sent[0]?.answer("first");
    await settled();
    expect(heard).toEqual(["begun", "first", "begun"]);
    sent[1]?.answer("second");
    await settled();
    expect(heard).toEqual(["begun", "first", "begun", "second"]);
    expect(sent.length).toBe(2);
  });

  it("gives up a question whose answer is no longer wanted", async () => {
    const { asker, sent, heard, settled } = stand();
    asker.ask("last 30m");
    asker.ask("last 1h");
    expect(sent.map(({ abort }) => abort.aborted)).toEqual([true, false]);
    sent[0]?.answer("of the old range");
    sent[1]?.answer("of the new range");
    await settled();
    expect(heard).toEqual(["begun", "begun", "of the new range"]);
  });

  it("asks again after a failure that came while a pulse waited", async () => {
    const { asker, sent, heard, settled } = stand();
    asker.ask("jobs");
    asker.ask("jobs");
    sent[0]?.fail(new Failure(503, "busy", "later"));
    await settled();
    expect(heard).toEqual(["begun", "failed: later", "begun"]);
    expect(sent.length).toBe(2);
  });

  it("gives up a line that is dead", async () => {
    const { asker, sent, heard } = stand(0.01);
    asker.ask("jobs");
    await vi.waitFor(() => expect(heard).toEqual(["begun", "failed: No answer within 0.01 s."]));
    expect(sent[0]?.abort.aborted).toBe(true);
  });

  it("tells nothing after it was stopped", async () => {
    const { asker, sent, heard, settled } = stand();
    asker.ask("jobs");
    asker.ask("jobs");
    asker.stop();
    sent[0]?.answer("too late");
    await settled();
    expect(heard).toEqual(["begun"]);
    expect(sent.length).toBe(1);
  });
});
