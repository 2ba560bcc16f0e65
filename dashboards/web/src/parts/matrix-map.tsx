/** The matrix as a map: rows send, columns receive. Zoom, pan, point, choose; arrow keys move the chosen cell. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { By, Matrix } from "../api/matrix";
import { percent, si } from "../format";
import { isDark } from "../theme";
import {
  type Buffer,
  cellAt,
  type Drawing,
  draw,
  drawOver,
  FONT,
  geometryOf,
  type Marker,
  paintsOf,
} from "./matrix-draw";
import {
  coloursOf,
  enough,
  type Grid,
  kept,
  numberOf,
  type Quantity,
  type Sight,
  scaleOf,
  showing,
  VISIBLE,
  whole,
  zoomed,
} from "./matrix-grid";
import { BY_WORDS, headline, pairCalled } from "./matrix-words";
import "../style/matrix.css";

const HEIGHT = 640;
const ZOOM = 0.7;
const ARROWS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

export interface MapProps {
  readonly matrix: Matrix;
  readonly grid: Grid;
  readonly quantity: Quantity;
  /** Names that an incident accuses. */
  readonly marked: ReadonlySet<string>;
  readonly chosen: Marker | undefined;
  readonly onChoose: (row: number, column: number) => void;
}

/** How wide the element is, followed when it changes. */
function useWidth(): [{ current: HTMLDivElement | null }, number] {
  const place = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const node = place.current;
    if (!node) return;
    const watch = new ResizeObserver(() => {
      if (node.clientWidth > 0) setWidth(Math.floor(node.clientWidth));
    });
    watch.observe(node);
    return () => watch.disconnect();
  }, []);
  return [place, width];
}

function longestOf(names: readonly string[]): number {
  const context = document.createElement("canvas").getContext("2d");
  if (!context) return 60;
  context.font = FONT;
  // Names of one kind have nearly one length: a few suffice.
  const step = Math.max(1, Math.floor(names.length / 64));
  let most = 0;
  for (let place = names.length - 1; place >= 0; place -= step)
    most = Math.max(most, context.measureText((names[place] ?? "").slice(0, 60)).width);
  return most;
}

/** What is drawn, and which part of it is seen. */
function useDrawing({ grid, quantity, marked }: MapProps, width: number) {
  const size = grid.names.length;
  const dark = isDark.value;
  const [sight, setSight] = useState<Sight>(whole(size));
  const names = useMemo(() => grid.names.join("\n"), [grid]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: other names are another matrix
  useEffect(() => setSight(whole(size)), [names]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the theme moves all colours
  const colours = useMemo(() => coloursOf(grid, quantity, paintsOf(dark)), [grid, quantity, dark]);
  const geometry = useMemo(
    () => geometryOf(longestOf(grid.names), Math.max(280, width), HEIGHT),
    [grid, width],
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: the theme moves all colours
  const drawing: Drawing = useMemo(() => {
    const seen = sight.span > size ? whole(size) : sight;
    return { grid, colours, ground: paintsOf(dark).ground, sight: seen, geometry, marked };
  }, [grid, colours, dark, sight, geometry, marked]);
  return { drawing, setSight };
}

/** Two canvases: what the pointer moves lies above, so that the cells are not drawn again for it. */
function useCanvases(
  drawing: Drawing,
  hovered: Marker | undefined,
  chosen: Marker | undefined,
  width: number,
) {
  const base = useRef<HTMLCanvasElement>(null);
  const over = useRef<HTMLCanvasElement>(null);
  const buffer = useRef<Buffer>({});
  useEffect(() => {
    const canvas = base.current;
    if (!width || !canvas) return;
    const frame = requestAnimationFrame(() => draw(canvas, drawing, buffer.current));
    return () => cancelAnimationFrame(frame);
  }, [drawing, width]);
  useEffect(() => {
    const canvas = over.current;
    if (!width || !canvas) return;
    const frame = requestAnimationFrame(() => drawOver(canvas, drawing, hovered, chosen));
    return () => cancelAnimationFrame(frame);
  });
  return { base, over };
}

/** Arrows move the chosen cell (with shift by ten), `+`, `-` and `0` zoom. */
function onKey(
  event: KeyboardEvent,
  { drawing, chosen, setSight }: Hands,
  onChoose: MapProps["onChoose"],
): void {
  const { sight, grid } = drawing;
  const size = grid.names.length;
  const way = ARROWS[event.key];
  const stride = event.shiftKey ? 10 : 1;
  if (event.key === "+" || event.key === "=")
    setSight(zoomed(sight, size, ZOOM, ...centreOf(sight, chosen)));
  else if (event.key === "-") setSight(zoomed(sight, size, 1 / ZOOM));
  else if (event.key === "0") setSight(whole(size));
  else if (way) {
    const within = (at: number) => Math.min(size - 1, Math.max(0, at));
    const row = within((chosen?.row ?? 0) + way[0] * stride);
    const column = within((chosen?.column ?? 0) + way[1] * stride);
    onChoose(row, column);
    setSight(showing(sight, size, row, column));
  } else return;
  event.preventDefault();
}

interface Hands {
  readonly drawing: Drawing;
  readonly chosen: Marker | undefined;
  readonly setSight: (sight: Sight) => void;
}

/** Where the chosen cell is, 0..1 of what is seen: one goes nearer to it. */
function centreOf(sight: Sight, chosen: Marker | undefined): [number, number] {
  if (!chosen) return [0.5, 0.5];
  const part = (place: number) => Math.min(1, Math.max(0, place / sight.span));
  return [part(chosen.column + 0.5 - sight.left), part(chosen.row + 0.5 - sight.top)];
}

export function MatrixMap(props: MapProps) {
  const { grid, matrix, quantity, chosen } = props;
  const size = grid.names.length;
  const [place, width] = useWidth();
  const [hovered, setHovered] = useState<Marker>();
  const { drawing, setSight } = useDrawing(props, width);
  const { geometry, sight } = drawing;
  const { base, over } = useCanvases(drawing, hovered, chosen, width);
  const hands = useHands(over, drawing, setSight, setHovered, props.onChoose);
  const label = useMemo(() => labelOf(grid, matrix.by, quantity), [grid, matrix.by, quantity]);
  const isNear = sight.span < size;
  return (
    <div class="matrix-map" ref={place}>
      <div class="matrix-tools">
        <Legend grid={grid} quantity={quantity} dark={isDark.value} />
        <span class="row">
          {isNear && (
            <span class="soft">
              {Math.ceil(sight.top) + 1} to {Math.floor(sight.top + sight.span)} of {size}
            </span>
          )}
          <Zoom
            isWhole={!isNear}
            onZoom={(factor) => setSight(zoomed(sight, size, factor, ...centreOf(sight, chosen)))}
            onWhole={() => setSight(whole(size))}
          />
        </span>
      </div>
      <div
        class="matrix-sheet"
        style={{ width: `${geometry.width}px`, height: `${geometry.height}px` }}
      >
        <canvas ref={base} />
        <canvas
          ref={over}
          class={isNear ? "is-near" : ""}
          role="img"
          tabIndex={0}
          aria-label={label}
          onKeyDown={(event) => onKey(event, { drawing, chosen, setSight }, props.onChoose)}
          {...hands}
        />
        {hovered && <Tip drawing={drawing} hovered={hovered} by={matrix.by} bytes={matrix.bytes} />}
      </div>
    </div>
  );
}

function labelOf(grid: Grid, by: By, quantity: Quantity): string {
  const { length } = grid.names;
  const what = quantity === "bytes" ? "Bytes" : "Speed";
  return `${what} from each of ${length} ${BY_WORDS[by].many} to each other. ${headline(grid, by, quantity)} Arrow keys move the chosen pair.`;
}

function Zoom(props: { isWhole: boolean; onZoom: (factor: number) => void; onWhole: () => void }) {
  return (
    <fieldset class="matrix-zoom" aria-label="Zoom">
      <button
        type="button"
        aria-label="Nearer"
        title="Nearer (+)"
        onClick={() => props.onZoom(ZOOM)}
      >
        +
      </button>
      <button
        type="button"
        aria-label="Farther"
        title="Farther (-)"
        disabled={props.isWhole}
        onClick={() => props.onZoom(1 / ZOOM)}
      >
        −
      </button>
      <button type="button" title="All (0)" disabled={props.isWhole} onClick={props.onWhole}>
        All
      </button>
    </fieldset>
  );
}

/** What the pointer does: point, choose, drag the map, zoom with ctrl and the wheel. */
function useHands(
  over: { current: HTMLCanvasElement | null },
  drawing: Drawing,
  setSight: (sight: Sight) => void,
  setHovered: (marker: Marker | undefined) => void,
  onChoose: (row: number, column: number) => void,
) {
  const size = drawing.grid.names.length;
  const drag = useRef<{ x: number; y: number; sight: Sight; hasMoved: boolean }>(undefined);
  const latest = useRef(drawing);
  latest.current = drawing;
  useEffect(() => {
    const canvas = over.current;
    if (!canvas) return;
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const { geometry, sight, grid } = latest.current;
      const x = (event.offsetX - geometry.left) / geometry.side;
      const y = (event.offsetY - geometry.top) / geometry.side;
      setSight(zoomed(sight, grid.names.length, event.deltaY < 0 ? ZOOM : 1 / ZOOM, x, y));
    };
    canvas.addEventListener("wheel", wheel, { passive: false });
    return () => canvas.removeEventListener("wheel", wheel);
  }, [over, setSight]);
  return {
    onPointerDown: (event: PointerEvent) => {
      const { sight } = drawing;
      drag.current = { x: event.offsetX, y: event.offsetY, sight, hasMoved: false };
      if (sight.span < size) over.current?.setPointerCapture(event.pointerId);
    },
    onPointerMove: (event: PointerEvent) => {
      const from = drag.current;
      const [across, down] = from ? [event.offsetX - from.x, event.offsetY - from.y] : [0, 0];
      if (from && (from.hasMoved || Math.abs(across) + Math.abs(down) > 4)) {
        from.hasMoved = true;
        const cells = from.sight.span / drawing.geometry.side;
        const { left, top } = from.sight;
        setSight(
          kept({ ...from.sight, left: left - across * cells, top: top - down * cells }, size),
        );
      }
      setHovered(cellAt(drawing, event.offsetX, event.offsetY));
    },
    onPointerUp: (event: PointerEvent) => {
      const hit = cellAt(drawing, event.offsetX, event.offsetY);
      if (drag.current && !drag.current.hasMoved && hit) onChoose(hit.row, hit.column);
      drag.current = undefined;
    },
    onPointerCancel: () => {
      drag.current = undefined;
    },
    onPointerLeave: () => setHovered(undefined),
  };
}

function Tip(props: { drawing: Drawing; hovered: Marker; by: By; bytes: number }) {
  const { grid, geometry, sight } = props.drawing;
  const { row, column } = props.hovered;
  const cell = grid.at(row, column);
  const source = grid.names[row] ?? "";
  const target = grid.names[column] ?? "";
  const x = geometry.left + ((column + 1 - sight.left) * geometry.side) / sight.span;
  const y = geometry.top + ((row + 1 - sight.top) * geometry.side) / sight.span;
  const isRight = x > geometry.width * 0.6;
  return (
    <div
      class="matrix-tip"
      aria-hidden="true"
      style={{
        top: `${Math.min(y + 6, geometry.height - 60)}px`,
        ...(isRight ? { right: `${geometry.width - x + 14}px` } : { left: `${x + 8}px` }),
      }}
    >
      <b>{pairCalled(props.by, { source, target })}</b>
      {cell ? (
        <span>
          {si(cell.bytes, "B")} ({percent(cell.bytes / props.bytes)}) ·{" "}
          {si(cell.transfer_bytes_per_second, "B/s")} · {cell.how}
          {cell.is_local ? " · within the host" : ""}
        </span>
      ) : (
        <span>nothing</span>
      )}
    </div>
  );
}

/** Which colour means how much. */
function Legend({ grid, quantity, dark }: { grid: Grid; quantity: Quantity; dark: boolean }) {
  const isSpeed = quantity === "speed";
  const most = useMemo(
    () =>
      [false, true].map(
        (isLocal) => scaleOf(enough(grid, isLocal).map((cell) => numberOf(cell, quantity))).most,
      ),
    [grid, quantity],
  );
  const paints = paintsOf(dark);
  return (
    <div class="matrix-legend">
      {[paints.network, paints.local].map((ramp, place) => {
        const highest = most[place];
        if (highest === undefined || !Number.isFinite(highest)) return null;
        const stops = [0, 0.25, 0.5, 0.75, 1].map(
          (share) => `rgb(${ramp(VISIBLE + (1 - VISIBLE) * share).join(",")})`,
        );
        const words = place ? "within a host" : "between hosts";
        return (
          <span key={words}>
            <span>{words}</span>
            <span class="soft">{isSpeed ? `fast ${si(highest, "B/s")}` : "little"}</span>
            <i style={{ background: `linear-gradient(to right, ${stops.join(",")})` }} />
            <span class="soft">{isSpeed ? "slow" : si(highest, "B")}</span>
          </span>
        );
      })}
    </div>
  );
}
