/**
 * How smoothly a heat map of 1,024 ranks and 500 steps pans. Not shipped: only `vite` serves this folder.
 *
 * Open bench/heat.html and call `pan(seconds)`, or let tests/bench do it: it drags the map to and fro by one
 * step a frame and resolves with the frames a second and the longest frame.
 */
import { render } from "preact";
import "../src/style/page.css";
import type { Heat } from "../src/api/heat";
import { rowsOf, scaleOf } from "../src/parts/heat";
import { HeatTrack } from "../src/parts/heat-track";
import { Timeline } from "../src/parts/timeline-stack";

const RANKS = 1024;
const STEPS = 500;
const STEP_SECONDS = 2;

/** A job of 128 hosts in which rank 700 is late from the middle on, made of a fixed row of numbers. */
function made(): Heat {
  let seed = 7;
  const next = () => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return seed / 2 ** 31;
  };
  const values = new Float32Array(RANKS * STEPS);
  for (let place = 0; place < values.length; place++) {
    const [rank, step] = [Math.floor(place / STEPS), place % STEPS];
    values[place] = rank === 700 && step > STEPS / 2 ? 0.3 + 0.1 * next() : 0.03 * next() ** 3;
  }
  return {
    quantity: "late",
    ranks: Array.from({ length: RANKS }, (_, rank) => ({
      rank,
      host: `node${String(rank >> 3).padStart(4, "0")}`,
      gpu: String(rank & 7),
      device: "mlx5_0",
    })),
    steps: Array.from({ length: STEPS }, (_, step) => ({
      from: step * STEP_SECONDS,
      to: (step + 1) * STEP_SECONDS,
    })),
    stepsInOne: 1,
    values,
  };
}

const heat = made();
const rows = rowsOf(heat, "rank", "rank");
const scale = scaleOf(heat);

function Bench() {
  return (
    <Timeline label="bench" span={{ from: 0, to: (STEPS * STEP_SECONDS) / 2 }} bands={[]}>
      <HeatTrack
        heat={heat}
        rows={rows}
        scale={scale}
        hint=""
        accused={new Set([700])}
        chosen={{ rank: 700, time: undefined }}
      />
    </Timeline>
  );
}

const place = document.getElementById("app");
if (place) render(<Bench />, place);

interface Pan {
  readonly framesPerSecond: number;
  readonly longestFrameMs: number;
  readonly frames: number;
}

/** Drags with Shift as a hand does, one move a frame. */
async function pan(seconds: number): Promise<Pan> {
  const canvas = document.querySelector("canvas") as HTMLCanvasElement;
  const box = canvas.getBoundingClientRect();
  const middle = box.left + box.width / 2;
  const send = (type: string, x: number) =>
    canvas.dispatchEvent(
      new PointerEvent(type, {
        bubbles: true,
        pointerId: 1,
        shiftKey: true,
        clientX: x,
        clientY: box.top + 100,
      }),
    );
  // A made-up pointer cannot be captured.
  (canvas.closest(".timeline") as HTMLElement).setPointerCapture = () => {};
  send("pointerdown", middle);
  const start = await frame();
  let [last, longest, frames] = [start, 0, 0];
  while (last - start < seconds * 1000) {
    send("pointermove", middle + 200 * Math.sin(((last - start) / 1000) * 2));
    const time = await frame();
    longest = Math.max(longest, time - last);
    last = time;
    frames++;
  }
  send("pointerup", middle);
  return { framesPerSecond: (frames * 1000) / (last - start), longestFrameMs: longest, frames };
}

const frame = () => new Promise<number>((resolve) => requestAnimationFrame(resolve));

declare global {
  interface Window {
    pan: typeof pan;
  }
}
window.pan = pan;
