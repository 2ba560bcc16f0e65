/** The fabric as a drawing that is moved and enlarged by hand, wheel, fingers and keys. */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { isDark } from "../theme";
import type { Flow } from "./fabric-flows";
import type { FabricGraph, Focus } from "./fabric-graph";
import { type Hit, hitAt } from "./fabric-hit";
import { type Form, layoutOf, placeOfLink, placeOfNode } from "./fabric-layout";
import type { Mark } from "./fabric-marks";
import { drawAbove } from "./fabric-overlay";
import { Painter, type Palette, paletteOf, type Scene, wiresAt } from "./fabric-paint";
import {
  fitted,
  isCovered,
  isSeen,
  kept,
  lookingAt,
  type Shift,
  type Size,
  shiftOf,
  type View,
  zoomed,
} from "./fabric-view";

export interface FabricMapProps {
  readonly graph: FabricGraph;
  readonly form: Form;
  /** The step of the ramp of each link. */
  readonly buckets: Uint8Array;
  readonly lit: ReadonlySet<number> | undefined;
  readonly marks: readonly Mark[];
  readonly chosen: Focus | undefined;
  readonly onChoose: (focus: Focus | undefined) => void;
  /** What a sighted reader sees, in words. */
  readonly label: string;
  /** The text beside the pointer. */
  readonly tip: (hit: Hit) => ComponentChildren;
  /** What flows over it now, from node to node. */
  readonly flows?: readonly Flow[];
  /** Where its readers find the same in words. */
  readonly same?: string;
}

/** Shapes of the space that layouts are made for: not a new one for each pixel. */
const ASPECTS = [0.7, 1, 1.4, 1.9, 2.5];
const REACH = 6;
const KEY_STEP = 60;
const KEY_ZOOM = 1.3;
const WHEEL_ZOOM = 0.0016;
const CLICK_SLACK = 4;
/** More lines and cells than this are not drawn anew for each frame of a movement: the sheet is moved. */
const HEAVY = 2500;
/** How far the sheet of a heavy drawing reaches beyond what is seen, of its size, on each side. */
const SHEET_PAD = 0.25;
/** A movement has ended; and how often a sheet that no longer covers all is drawn during one. */
const SETTLE_MS = 120;
const UNCOVERED_MS = 250;

interface Hover {
  readonly hit: Hit;
  readonly x: number;
  readonly y: number;
}

function nearest(aspect: number): number {
  return ASPECTS.reduce((best, one) =>
    Math.abs(Math.log(one / aspect)) < Math.abs(Math.log(best / aspect)) ? one : best,
  );
}

export function FabricMap(props: FabricMapProps) {
  const place = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState<Size>({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const node = place.current;
    if (!node) return;
    const measure = () => setSize({ width: node.clientWidth, height: node.clientHeight });
    const watch = new ResizeObserver(measure);
    watch.observe(node);
    measure();
    return () => watch.disconnect();
  }, []);
  return (
    <div class="fabric-map" ref={place}>
      {size.width > 0 && size.height > 0 && <Drawing {...props} size={size} />}
    </div>
  );
}

function Drawing(props: FabricMapProps & { size: Size }) {
  const { graph, form, size, chosen } = props;
  const aspect = nearest(size.width / size.height);
  const layout = useMemo(() => layoutOf(graph, form, aspect), [graph, form, aspect]);
  const scene = useMemo<Scene>(
    () => ({ graph, layout, buckets: props.buckets, lit: props.lit }),
    [graph, layout, props.buckets, props.lit],
  );
  const [hover, setHover] = useState<Hover>();
  const dark = isDark.value;
  const drawing = useRef<Hand>(null);
  const hand = drawing.current ?? new Hand();
  drawing.current = hand;
  const [base, above] = [useRef<HTMLCanvasElement>(null), useRef<HTMLCanvasElement>(null)];
  hand.props = { ...props, scene, hovered: hover?.hit.focus, dark, onHover: setHover };

  // biome-ignore lint/correctness/useExhaustiveDependencies: canvases stay as long as the component
  useLayoutEffect(() => {
    if (base.current && above.current) hand.attach(base.current, above.current);
    return () => hand.detach();
  }, [hand]);
  useLayoutEffect(() => hand.resize(size, layout), [hand, size, layout]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new place to look at, not a new colour
  useLayoutEffect(() => {
    if (chosen) hand.lookAt(chosen);
  }, [hand, layout, chosen?.kind, chosen?.index]);
  useEffect(() => {
    hand.redraw();
  });
  return (
    <>
      <canvas ref={base} class="fabric-sheet" />
      <canvas
        ref={above}
        role="img"
        tabIndex={0}
        aria-label={props.label}
        aria-describedby="fabric-map-keys"
      />
      <p id="fabric-map-keys" class="unseen">
        Arrow keys move the drawing, plus and minus enlarge it, 0 shows all of it.{" "}
        {props.same ?? "The table of links shows the same."}
      </p>
      <fieldset class="fabric-zoom" aria-label="Size of the drawing">
        <button
          type="button"
          aria-label="Larger"
          title="Larger (+)"
          onClick={() => hand.zoom(KEY_ZOOM)}
        >
          +
        </button>
        <button
          type="button"
          aria-label="Smaller"
          title="Smaller (−)"
          onClick={() => hand.zoom(1 / KEY_ZOOM)}
        >
          −
        </button>
        <button type="button" title="All of it (0)" onClick={() => hand.fit()}>
          Fit
        </button>
      </fieldset>
      {hover && (
        <Tip hover={hover} size={size}>
          {props.tip(hover.hit)}
        </Tip>
      )}
    </>
  );
}

function Tip({ hover, size, children }: { hover: Hover; size: Size; children: ComponentChildren }) {
  const isRight = hover.x > size.width / 2;
  const isLow = hover.y > size.height / 2;
  const style = {
    left: isRight ? "auto" : `${hover.x + 14}px`,
    right: isRight ? `${size.width - hover.x + 14}px` : "auto",
    top: isLow ? "auto" : `${hover.y + 14}px`,
    bottom: isLow ? `${size.height - hover.y + 14}px` : "auto",
  };
  return (
    <div class="fabric-tip" style={style} aria-hidden="true">
      {children}
    </div>
  );
}

interface HandProps extends FabricMapProps {
  readonly scene: Scene;
  readonly hovered: Focus | undefined;
  readonly dark: boolean;
  readonly onHover: (hover: Hover | undefined) => void;
}

/** Holds the canvases between renders: what moves sixty times a second does not pass through components. */
class Hand {
  props!: HandProps;
  private base: HTMLCanvasElement | undefined;
  private above: HTMLCanvasElement | undefined;
  private painter: Painter | undefined;
  private size: Size = { width: 1, height: 1 };
  private layout: Size = { width: 1, height: 1 };
  private view: View = { scale: 1, x: 0, y: 0 };
  /** Whether the reader has chosen a part: then a new size of the window keeps it. */
  private isMoved = false;
  private frame = 0;
  private readonly abort = { current: new AbortController() };
  private readonly pointers = new Map<number, { x: number; y: number }>();
  private travelled = 0;
  /** What the sheet below shows: scene, colours, and the part and size that it was drawn for. */
  private drawn: { scene: Scene; dark: boolean; view: View; time: number } | undefined;
  private settle = 0;

  attach(base: HTMLCanvasElement, above: HTMLCanvasElement): void {
    [this.base, this.above] = [base, above];
    const context = base.getContext("2d", { alpha: false });
    this.painter = context ? new Painter(context) : undefined;
    this.abort.current = new AbortController();
    const { signal } = this.abort.current;
    above.addEventListener("wheel", (event) => this.onWheel(event), { signal, passive: false });
    above.addEventListener("pointerdown", (event) => this.onDown(event), { signal });
    above.addEventListener("pointermove", (event) => this.onMove(event), { signal });
    above.addEventListener("pointerup", (event) => this.onUp(event), { signal });
    above.addEventListener("pointercancel", (event) => this.onUp(event), { signal });
    above.addEventListener("pointerleave", () => this.props.onHover(undefined), { signal });
    above.addEventListener("keydown", (event) => this.onKey(event), { signal });
  }

  detach(): void {
    this.abort.current.abort();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.settle);
    this.frame = 0;
  }

  resize(size: Size, layout: Size): void {
    const isNew = layout !== this.layout;
    [this.size, this.layout] = [size, layout];
    this.drawn = undefined;
    const { pad } = this;
    for (const [canvas, by] of [
      [this.base, pad],
      [this.above, { width: 0, height: 0 }],
    ] as const) {
      if (!canvas) continue;
      const [width, height] = [size.width + 2 * by.width, size.height + 2 * by.height];
      canvas.width = Math.round(width * this.ratio);
      canvas.height = Math.round(height * this.ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
      canvas.style.left = `${-by.width}px`;
      canvas.style.top = `${-by.height}px`;
    }
    if (isNew || !this.isMoved) this.fit();
    else this.show(this.view);
  }

  private get ratio(): number {
    return Math.min(2, devicePixelRatio || 1);
  }

  private get all(): View {
    return fitted(this.layout, this.size);
  }

  fit(): void {
    this.isMoved = false;
    this.view = this.all;
    this.redraw();
  }

  private show(view: View): void {
    const { all } = this;
    this.isMoved = view.scale > all.scale * 1.001;
    this.view = this.isMoved ? kept(view, this.layout, this.size) : all;
    // While all of it is seen a finger scrolls the page; then it moves the drawing.
    if (this.above) this.above.style.touchAction = this.isMoved ? "none" : "pan-y";
    this.redraw();
  }

  zoom(factor: number, x = this.size.width / 2, y = this.size.height / 2): void {
    this.show(zoomed(this.view, factor, x, y, this.all));
  }

  private move(dx: number, dy: number): void {
    this.show({ ...this.view, x: this.view.x + dx, y: this.view.y + dy });
  }

  lookAt(focus: Focus): void {
    const { layout } = this.props.scene;
    const place =
      focus.kind === "link" ? placeOfLink(layout, focus.index) : placeOfNode(layout, focus.index);
    if (place && !isSeen(this.view, place, this.size))
      this.show(lookingAt(this.view, place, this.size));
  }

  redraw(): void {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  private get isHeavy(): boolean {
    const { bundles, cells } = this.props.scene.layout;
    return bundles.length + cells.length > HEAVY;
  }

  private get pad(): Size {
    const share = this.isHeavy ? SHEET_PAD : 0;
    return {
      width: Math.round(this.size.width * share),
      height: Math.round(this.size.height * share),
    };
  }

  private draw(): void {
    const context = this.above?.getContext("2d");
    if (!context) return;
    const { scene, dark, marks, chosen, hovered, flows = [] } = this.props;
    const palette = paletteOf(dark);
    this.drawBelow(palette);
    const { graph, layout } = scene;
    const above = { graph, layout, marks, chosen, hovered, flows };
    drawAbove(context, above, this.view, this.size, this.ratio, palette);
  }

  /** The pointer and the culprits change nothing here; a movement of a heavy drawing only moves it. */
  private drawBelow(palette: Palette): void {
    const { scene, dark } = this.props;
    const { drawn, pad, size, view } = this;
    if (drawn?.scene === scene && drawn.dark === dark) {
      if (drawn.view === view) return;
      const shift = shiftOf(drawn.view, view, pad);
      const age = performance.now() - drawn.time;
      if (this.isHeavy && age < (isCovered(shift, pad, size) ? Infinity : UNCOVERED_MS)) {
        this.place(shift);
        clearTimeout(this.settle);
        this.settle = window.setTimeout(() => {
          this.drawn = undefined;
          this.redraw();
        }, SETTLE_MS);
        return;
      }
    }
    clearTimeout(this.settle);
    const sheet = { width: size.width + 2 * pad.width, height: size.height + 2 * pad.height };
    const padded = { scale: view.scale, x: view.x + pad.width, y: view.y + pad.height };
    this.painter?.draw(scene, padded, sheet, this.ratio, palette);
    this.drawn = { scene, dark, view, time: performance.now() };
    this.place({ x: 0, y: 0, scale: 1 });
  }

  private place({ x, y, scale }: Shift): void {
    if (!this.base) return;
    const isStill = x === 0 && y === 0 && scale === 1;
    this.base.style.transform = isStill ? "" : `translate(${x}px, ${y}px) scale(${scale})`;
  }

  // --- the reader's hands ---

  private onWheel(event: WheelEvent): void {
    const isOut = event.deltaY > 0;
    // At its smallest the wheel belongs to the page again.
    if (isOut && !this.isMoved) return;
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 30 : 1;
    this.zoom(Math.exp(-event.deltaY * lines * WHEEL_ZOOM), event.offsetX, event.offsetY);
  }

  private onDown(event: PointerEvent): void {
    this.above?.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    if (this.pointers.size === 1) this.travelled = 0;
  }

  private onMove(event: PointerEvent): void {
    const before = this.pointers.get(event.pointerId);
    const now = { x: event.offsetX, y: event.offsetY };
    if (!before) {
      this.hover(now);
      return;
    }
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.pointers.set(event.pointerId, now);
    this.travelled += Math.hypot(now.x - before.x, now.y - before.y);
    if (other) {
      const apart = (one: { x: number; y: number }) =>
        Math.max(1, Math.hypot(one.x - other.x, one.y - other.y));
      this.zoom(apart(now) / apart(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
    } else if (this.travelled > CLICK_SLACK) {
      this.props.onHover(undefined);
      this.move(now.x - before.x, now.y - before.y);
    }
  }

  private onUp(event: PointerEvent): void {
    const isLast = this.pointers.delete(event.pointerId) && this.pointers.size === 0;
    if (!isLast || event.type === "pointercancel" || this.travelled > CLICK_SLACK) return;
    this.props.onChoose(this.under(event.offsetX, event.offsetY)?.focus);
  }

  private under(x: number, y: number): Hit | undefined {
    const { scale } = this.view;
    const { layout } = this.props.scene;
    const [dx, dy] = [(x - this.view.x) / scale, (y - this.view.y) / scale];
    return hitAt(layout, wiresAt(layout, scale), dx, dy, REACH / scale);
  }

  private hover({ x, y }: { x: number; y: number }): void {
    const hit = this.under(x, y);
    if (this.above) this.above.style.cursor = hit ? "pointer" : this.isMoved ? "grab" : "default";
    this.props.onHover(hit && { hit, x, y });
  }

  private onKey(event: KeyboardEvent): void {
    const moves: Readonly<Record<string, () => void>> = {
      ArrowLeft: () => this.move(KEY_STEP, 0),
      ArrowRight: () => this.move(-KEY_STEP, 0),
      ArrowUp: () => this.move(0, KEY_STEP),
      ArrowDown: () => this.move(0, -KEY_STEP),
      "+": () => this.zoom(KEY_ZOOM),
      "=": () => this.zoom(KEY_ZOOM),
      "-": () => this.zoom(1 / KEY_ZOOM),
      "0": () => this.fit(),
      Escape: () => this.props.onChoose(undefined),
    };
    const move = moves[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move();
  }
}
