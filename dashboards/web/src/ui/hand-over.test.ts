import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { listening, readBounded } from "./hand-over";

const THERE = "https://viewer.example";
let heard: EventTarget;

beforeEach(() => {
  heard = new EventTarget();
  vi.useFakeTimers();
  vi.stubGlobal("addEventListener", heard.addEventListener.bind(heard));
  vi.stubGlobal("removeEventListener", heard.removeEventListener.bind(heard));
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const say = (data: unknown, origin: string) => {
  heard.dispatchEvent(Object.assign(new Event("message"), { data, origin }));
};

const receiver = (closed = false) => {
  const sent: unknown[][] = [];
  return { sent, closed, postMessage: (...words: unknown[]) => void sent.push(words) };
};

it("asks the one origin until that one answers", async () => {
  const tab = receiver();
  let isHeard = false;
  const done = listening(tab, THERE).then(() => {
    isHeard = true;
  });
  await vi.advanceTimersByTimeAsync(1000);
  expect(tab.sent.length).toBeGreaterThan(5);
  expect(new Set(tab.sent.map(String))).toEqual(new Set([`PING,${THERE}`]));
  say("PONG", "https://stranger.example");
  say("something else", THERE);
  await vi.advanceTimersByTimeAsync(200);
  expect(isHeard).toBe(false);
  say("PONG", THERE);
  await done;
  const { length } = tab.sent;
  await vi.advanceTimersByTimeAsync(1000);
  expect(tab.sent.length).toBe(length);
});

it("ends with a tab that was closed, and with one that never answers", async () => {
  const closed = expect(listening(receiver(true), THERE)).rejects.toThrow("closed");
  const mute = expect(listening(receiver(), THERE, 5)).rejects.toThrow("does not answer within 5");
  await vi.advanceTimersByTimeAsync(6000);
  await closed;
  await mute;
});

it("reads what fits and no more", async () => {
  vi.useRealTimers();
  const told: number[] = [];
  const whole = await readBounded(new Response("abcdef"), 6, (bytes) => told.push(bytes));
  expect(new TextDecoder().decode(whole)).toBe("abcdef");
  expect(told.at(-1)).toBe(6);
  await expect(readBounded(new Response("abcdefg"), 6, () => undefined)).rejects.toThrow("larger");
});
