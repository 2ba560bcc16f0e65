/** Draws a fabric on a canvas: links of one colour together, labels where there is room for them. */
import { colour, ramp } from "../theme";
import type { FabricGraph } from "./fabric-graph";
import { controlOf } from "./fabric-hit";
import { type Box, CELL, type Layout, type Wire } from "./fabric-layout";
import { BUCKETS, DOWN, NO_DATA, worstBucket } from "./fabric-scale";
import { onScreen, type Size, shortened, type View } from "./fabric-view";

export interface Scene {
  readonly graph: FabricGraph;
  readonly layout: Layout;
  /** The step of the ramp of each link. */
  readonly buckets: Uint8Array;
  /** Links that matter now; undefined: all. */
  readonly lit: ReadonlySet<number> | undefined;
}

export interface Palette {
  readonly steps: readonly string[];
  readonly ink: string;
  readonly soft: string;
  readonly rule: string;
  readonly card: string;
  readonly chip: string;
  readonly bad: string;
  readonly badGround: string;
  readonly accent: string;
  /** Parts of a step, as everywhere on the page. */
  readonly wait: string;
  readonly transfer: string;
}

/** An idle link is seen, and quiet: the ramp's own beginning is for cells that touch each other. */
const IDLE = { light: [178, 188, 200], dark: [72, 84, 99] } as const;
/** From here on the ramp is strong enough to be a thin line. */
const RAMP_FROM = 0.28;

/** The colour of a step, as CSS writes it. */
export function stepColour(bucket: number, dark: boolean): string {
  const idle = dark ? IDLE.dark : IDLE.light;
  const share = bucket / (BUCKETS - 1);
  const full = ramp(RAMP_FROM + (1 - RAMP_FROM) * share, dark);
  const mix = Math.min(1, share * 4);
  const part = (n: 0 | 1 | 2) => Math.round(idle[n] + (full[n] - idle[n]) * mix);
  return `rgb(${part(0)} ${part(1)} ${part(2)})`;
}

export function paletteOf(dark: boolean): Palette {
  return {
    steps: Array.from({ length: BUCKETS }, (_, bucket) => stepColour(bucket, dark)),
    ink: colour("ink"),
    soft: colour("soft"),
    rule: colour("rule"),
    card: colour("card"),
    chip: colour("chip"),
    bad: colour("bad"),
    badGround: colour("bad-ground"),
    accent: colour("accent"),
    wait: colour("wait"),
    transfer: colour("transfer"),
  };
}

/** Lines of a bundle are drawn one by one from this distance on, in CSS pixels. */
const STRANDS_FROM = 2.5;
const FAINT = 0.18;
const FONT = "11px system-ui, sans-serif";
const LABEL_ROOM = 8;

/** The lines that are drawn at a scale. */
export function wiresAt(layout: Layout, scale: number): readonly Wire[] {
  return layout.strandGap * scale >= STRANDS_FROM ? layout.strands : layout.bundles;
}

export function trace(path: Path2D | CanvasRenderingContext2D, wire: Wire): void {
  path.moveTo(wire.x1, wire.y1);
  if (wire.bend === 0) path.lineTo(wire.x2, wire.y2);
  else path.quadraticCurveTo(...controlOf(wire), wire.x2, wire.y2);
}

interface Batch {
  readonly bucket: number;
  readonly isLit: boolean;
  readonly path: Path2D;
}

export class Painter {
  private batches: readonly Batch[] = [];
  private batched: { scene: Scene; wires: readonly Wire[] } | undefined;
  private readonly widths = new Map<string, number>();

  constructor(private readonly context: CanvasRenderingContext2D) {}

  draw(scene: Scene, view: View, size: Size, ratio: number, palette: Palette): void {
    const { context } = this;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = palette.card;
    context.fillRect(0, 0, size.width, size.height);
    this.drawGroups(scene, view, palette);
    this.drawWires(scene, view, ratio, palette);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawCells(scene, view, size, palette);
    this.drawNodes(scene, view, size, palette);
  }

  private drawGroups({ layout }: Scene, view: View, palette: Palette): void {
    const { context } = this;
    for (const group of layout.groups) {
      const box = onScreen(group, view);
      if (group.label) {
        context.globalAlpha = 0.5;
        context.fillStyle = palette.chip;
        context.fillRect(box.x - 4, box.y - 4, box.w + 8, box.h + 8);
        context.globalAlpha = 1;
        this.write(group.label, box.x + box.w / 2, box.y + box.h + 16, box.w + 8, palette.soft);
      }
    }
  }

  /** Lines of one colour are one path; it is made anew only when colours or the level of detail change. */
  private batch(scene: Scene, scale: number): readonly Batch[] {
    const wires = wiresAt(scene.layout, scale);
    if (this.batched?.scene === scene && this.batched.wires === wires) return this.batches;
    const paths = new Map<number, Batch>();
    for (const wire of wires) {
      const bucket = worstBucket(scene.buckets, wire.links);
      const isLit = !scene.lit || wire.links.some((link) => scene.lit?.has(link));
      const key = bucket * 2 + Number(isLit);
      let batch = paths.get(key);
      if (!batch) {
        batch = { bucket, isLit, path: new Path2D() };
        paths.set(key, batch);
      }
      trace(batch.path, wire);
    }
    this.batched = { scene, wires };
    // What is unknown lies below, then what is quiet; the worst is on top.
    const height = (batch: Batch) => (batch.bucket === NO_DATA ? -1 : batch.bucket);
    this.batches = [...paths.values()].sort(
      (one, other) => Number(one.isLit) - Number(other.isLit) || height(one) - height(other),
    );
    return this.batches;
  }

  private drawWires(scene: Scene, view: View, ratio: number, palette: Palette): void {
    const { context } = this;
    const batches = this.batch(scene, view.scale);
    // The more lines, the thinner each, so that the hot ones are not lost among the others.
    const thin = Math.max(0.4, Math.min(1, 14 / Math.sqrt(this.batched?.wires.length || 1)));
    context.setTransform(
      ratio * view.scale,
      0,
      0,
      ratio * view.scale,
      ratio * view.x,
      ratio * view.y,
    );
    for (const { bucket, isLit, path } of batches) {
      const share = bucket < BUCKETS ? bucket / (BUCKETS - 1) : bucket === DOWN ? 1 : 0;
      context.lineWidth = (thin * (1.4 + 2.4 * share)) / view.scale;
      context.globalAlpha = isLit ? 1 : FAINT;
      context.strokeStyle = bucket === DOWN ? palette.bad : (palette.steps[bucket] ?? palette.soft);
      const dash = bucket === DOWN ? [7, 5] : bucket === NO_DATA ? [1.5, 4] : [];
      context.setLineDash(dash.map((length) => length / view.scale));
      context.stroke(path);
    }
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  private drawCells(scene: Scene, view: View, size: Size, palette: Palette): void {
    const { context } = this;
    const { cells } = scene.layout;
    const gap = CELL * view.scale >= 5 ? 1 : 0;
    let [fill, alpha] = ["", 1];
    const bare: Box[] = [];
    const down: Box[] = [];
    for (const cell of cells) {
      const box = snapped(cell, view);
      if (box.x > size.width || box.y > size.height || box.x + box.w < 0 || box.y + box.h < 0)
        continue;
      const bucket = scene.buckets[cell.link] ?? NO_DATA;
      if (bucket === DOWN) down.push(box);
      else if (bucket === NO_DATA) bare.push(box);
      const style = bucket >= BUCKETS ? palette.card : (palette.steps[bucket] ?? palette.card);
      const strength = !scene.lit || scene.lit.has(cell.link) ? 1 : FAINT;
      if (style !== fill) context.fillStyle = fill = style;
      if (strength !== alpha) context.globalAlpha = alpha = strength;
      context.fillRect(box.x, box.y, Math.max(1, box.w - gap), Math.max(1, box.h - gap));
    }
    context.globalAlpha = 1;
    this.outline(bare, palette.soft, [1, 2]);
    this.outline(down, palette.bad, []);
    this.writeInCells(scene, view, size, palette);
  }

  /** A link that is down is crossed out; one without readings is hollow. */
  private outline(boxes: readonly Box[], style: string, dash: readonly number[]): void {
    if (!boxes.length) return;
    const { context } = this;
    context.beginPath();
    for (const { x, y, w, h } of boxes) {
      context.rect(x + 0.5, y + 0.5, Math.max(1, w - 2), Math.max(1, h - 2));
      if (dash.length) continue;
      context.moveTo(x + 1, y + 1);
      context.lineTo(x + w - 2, y + h - 2);
    }
    context.strokeStyle = style;
    context.lineWidth = 1;
    context.setLineDash([...dash]);
    context.stroke();
    context.setLineDash([]);
  }

  /** The host's name inside its cell, as soon as it fits. */
  private writeInCells(scene: Scene, view: View, size: Size, palette: Palette): void {
    const { graph, layout } = scene;
    for (const cell of layout.cells) {
      const box = onScreen(cell, view);
      if (box.h < 13 || box.w < 18) return;
      if (box.x > size.width || box.y > size.height || box.x + box.w < 0 || box.y + box.h < 0)
        continue;
      const link = graph.links[cell.link];
      const bucket = scene.buckets[cell.link] ?? NO_DATA;
      const end = link && (graph.nodes[link.low.node]?.isSwitch ? link.high : link.low);
      const ink = bucket < BUCKETS && bucket > BUCKETS * 0.55 ? palette.card : palette.ink;
      if (end) this.write(end.host, box.x + box.w / 2, box.y + box.h / 2 + 4, box.w, ink);
    }
  }

  private drawNodes(scene: Scene, view: View, size: Size, palette: Palette): void {
    const { context } = this;
    const { graph, layout } = scene;
    for (const node of graph.nodes) {
      const first = layout.boxes[node.index]?.[0];
      if (!first || !layout.boxed.has(node.index)) continue;
      const box = onScreen(first, view);
      if (box.x > size.width || box.x + box.w < 0 || box.y > size.height || box.y + box.h < 0)
        continue;
      const isFaint = scene.lit && !node.links.some((link) => scene.lit?.has(link));
      context.globalAlpha = isFaint ? 0.35 : 1;
      if (box.w < 5) {
        context.fillStyle = palette.soft;
        context.fillRect(box.x, box.y, Math.max(1, box.w - 0.5), box.h);
        continue;
      }
      context.fillStyle = node.isSwitch ? palette.chip : palette.card;
      context.strokeStyle = palette.soft;
      context.lineWidth = 1;
      context.beginPath();
      context.roundRect(box.x, box.y, box.w, box.h, Math.min(4, box.w / 4, box.h / 4));
      context.fill();
      context.stroke();
      const isInside = box.h >= 13;
      const y = isInside ? box.y + box.h / 2 + 4 : box.y - 5;
      this.write(node.name, box.x + box.w / 2, y, box.w, palette.ink);
    }
    context.globalAlpha = 1;
  }

  /** Text in the middle of a place, shortened from the left where it does not fit, left out if hopeless. */
  private write(text: string, x: number, y: number, room: number, style: string): void {
    const { context } = this;
    context.font = FONT;
    const fitting = shortened(text, room - LABEL_ROOM, (part) => this.widthOf(part));
    if (!fitting) return;
    context.fillStyle = style;
    context.textAlign = "center";
    context.fillText(fitting, x, y);
  }

  private widthOf(text: string): number {
    const known = this.widths.get(text);
    if (known !== undefined) return known;
    // Names come and go with fabrics; the memory of them is bounded.
    if (this.widths.size > 20_000) this.widths.clear();
    const width = this.context.measureText(text).width;
    this.widths.set(text, width);
    return width;
  }
}

/** At whole pixels: cells that touch have no seams. */
function snapped(box: Box, view: View): Box {
  const [x, y] = [Math.round(box.x * view.scale + view.x), Math.round(box.y * view.scale + view.y)];
  return {
    x,
    y,
    w: Math.max(1, Math.round((box.x + box.w) * view.scale + view.x) - x),
    h: Math.max(1, Math.round((box.y + box.h) * view.scale + view.y) - y),
  };
}
