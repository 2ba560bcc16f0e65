/** The fleet as cells, one a host: colour and mark show its state. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { HostHealth } from "../api/hosts";
import { count } from "../format";
import { go, href } from "../route";
import { colour, isDark } from "../theme";
import {
  cellAt,
  endsOf,
  type Group,
  hostAt,
  NAMED_FROM,
  type Plan,
  planCells,
  step,
} from "./host-cells";
import { LOOKS, type Look, lookOf, reasonWords } from "./host-words";
import "../style/hosts.css";

/** Higher than this the smallest cells are taken, and the reader scrolls. */
const HEIGHT_MAX = 620;
const FADED = 0.18;
const MARKED_FROM = 10;

interface Drawn {
  readonly plan: Plan;
  readonly names: readonly string[];
  /** By a host's number. */
  readonly looks: readonly Look[];
  readonly isFaded: readonly boolean[];
}

function draw(canvas: HTMLCanvasElement, width: number, drawn: Drawn): void {
  const { plan, looks, isFaded } = drawn;
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.max(1, Math.round(plan.height * scale));
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.scale(scale, scale);
  const size = plan.pitch - (plan.pitch > 8 ? 2 : 1);
  for (const look of LOOKS) {
    pen.fillStyle = pen.strokeStyle = colour(`host-${look}`);
    for (const block of plan.blocks)
      for (let place = 0; place < block.count; place++) {
        const index = block.first + place;
        if (looks[index] !== look) continue;
        pen.globalAlpha = isFaded[index] ? FADED : 1;
        const x = block.x + (place % block.columns) * plan.pitch;
        const y = block.cells + Math.floor(place / block.columns) * plan.pitch;
        drawCell(pen, look, x, y, size);
      }
  }
  pen.globalAlpha = 1;
  drawLabels(pen, plan);
  if (plan.pitch >= NAMED_FROM) drawNames(pen, drawn, size);
}

/** In small fleets the end of each name, which distinguishes hosts. */
function drawNames(
  pen: CanvasRenderingContext2D,
  { plan, names, isFaded }: Drawn,
  size: number,
): void {
  pen.font = "11px ui-monospace, monospace";
  pen.textBaseline = "alphabetic";
  pen.fillStyle = colour("ink");
  endsOf(names).forEach((end, index) => {
    const { x, y } = cellAt(plan, index);
    pen.globalAlpha = isFaded[index] ? FADED : 1;
    pen.fillText(end, x + 3, y + size - 4, size - 6);
  });
  pen.globalAlpha = 1;
}

/** Shapes beside colours: silent is hollow, draining half full, out crossed, degraded has a dot. */
function drawCell(
  pen: CanvasRenderingContext2D,
  look: Look,
  x: number,
  y: number,
  size: number,
): void {
  if (look === "silent" || (look === "out" && size >= MARKED_FROM)) {
    pen.lineWidth = size >= MARKED_FROM ? 2 : 1;
    pen.strokeRect(x + 1, y + 1, size - 2, size - 2);
  } else if (look === "draining" && size >= MARKED_FROM) {
    pen.lineWidth = 1.5;
    pen.strokeRect(x + 1, y + 1, size - 2, size - 2);
    pen.fillRect(x, y + size / 2, size, size / 2);
  } else pen.fillRect(x, y, size, size);
  if (size < MARKED_FROM) return;
  if (look === "out") {
    pen.beginPath();
    pen.moveTo(x + 3, y + 3);
    pen.lineTo(x + size - 3, y + size - 3);
    pen.moveTo(x + size - 3, y + 3);
    pen.lineTo(x + 3, y + size - 3);
    pen.stroke();
  }
  if (look === "degraded" || look === "suspect") {
    const before = pen.fillStyle;
    pen.fillStyle = colour("card");
    pen.beginPath();
    if (look === "degraded") pen.arc(x + size / 2, y + size / 2, size / 5, 0, 2 * Math.PI);
    else pen.rect(x + size * 0.3, y + size * 0.42, size * 0.4, size * 0.16);
    pen.fill();
    pen.fillStyle = before;
  }
}

function drawLabels(pen: CanvasRenderingContext2D, plan: Plan): void {
  if (plan.blocks.length < 2) return;
  pen.font = "11.5px system-ui, sans-serif";
  pen.textBaseline = "top";
  pen.fillStyle = colour("soft");
  for (const block of plan.blocks) {
    const room = block.columns * plan.pitch;
    let text = block.name;
    while (text.length > 2 && pen.measureText(text).width > room)
      text = `${text.slice(0, text.endsWith("…") ? -2 : -1)}…`;
    pen.fillText(text, block.x, block.y + 2);
  }
}

/** Cells of `groups`; hosts that are not `wanted` are faint, so that places stay. */
export function HostGrid(props: {
  label: string;
  groups: readonly Group[];
  hosts: ReadonlyMap<string, HostHealth>;
  isWanted: (host: HostHealth) => boolean;
  now: number;
}) {
  const place = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [pointed, setPointed] = useState<number>();
  const { groups, hosts, isWanted } = props;
  const names = useMemo(() => groups.flatMap((group) => group.hosts), [groups]);
  const plan = useMemo(() => planCells(groups, width, HEIGHT_MAX), [groups, width]);
  // Before it is painted: without a width the cells would stand below each other.
  useLayoutEffect(() => {
    const node = place.current;
    if (!node) return;
    const watch = new ResizeObserver(() => setWidth(node.clientWidth));
    watch.observe(node);
    setWidth(node.clientWidth);
    return () => watch.disconnect();
  }, []);
  const dark = isDark.value;
  // biome-ignore lint/correctness/useExhaustiveDependencies: colours change with `dark`
  useEffect(() => {
    if (!canvas.current || !width) return;
    const shown = names.map((name) => hosts.get(name));
    draw(canvas.current, width, {
      plan,
      names,
      looks: shown.map((host) => (host ? lookOf(host) : "healthy")),
      isFaded: shown.map((host) => !host || !isWanted(host)),
    });
  }, [plan, names, hosts, isWanted, width, dark]);
  const open = (index: number | undefined) => {
    const name = index === undefined ? undefined : names[index];
    if (name !== undefined) go(href(["hosts", name]));
  };
  const at = (event: MouseEvent) => {
    const box = canvas.current?.getBoundingClientRect();
    return box && hostAt(plan, event.clientX - box.left, event.clientY - box.top);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Enter") open(pointed);
    else if (/^(Arrow|Home|End)/.test(event.key) && !event.ctrlKey && !event.metaKey)
      setPointed(pointed === undefined ? 0 : step(plan, pointed, event.key));
    else return;
    event.preventDefault();
  };
  const host = pointed === undefined ? undefined : hosts.get(names[pointed] ?? "");
  return (
    <div class="host-grid" ref={place}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={props.label}
        tabIndex={0}
        style={{ width: "100%", height: `${plan.height}px` }}
        onPointerMove={(event) => setPointed(at(event))}
        onPointerLeave={() => setPointed(undefined)}
        onBlur={() => setPointed(undefined)}
        onClick={(event) => open(at(event))}
        onKeyDown={onKey}
      />
      {host && pointed !== undefined && (
        <Pointed host={host} plan={plan} index={pointed} width={width} now={props.now} />
      )}
    </div>
  );
}

const TIP_WIDTH = 270;

function Pointed(props: {
  host: HostHealth;
  plan: Plan;
  index: number;
  width: number;
  now: number;
}) {
  const { host, plan, width } = props;
  const { x, y } = cellAt(plan, props.index);
  const left = Math.max(0, Math.min(x - 10, width - TIP_WIDTH));
  return (
    <>
      <i
        class="host-ring"
        aria-hidden="true"
        style={{
          left: `${x}px`,
          top: `${y}px`,
          width: `${plan.pitch}px`,
          height: `${plan.pitch}px`,
        }}
      />
      <div
        class="host-tip"
        role="status"
        style={{ left: `${left}px`, top: `${y + plan.pitch + 6}px`, width: `${TIP_WIDTH}px` }}
      >
        <b>{host.host}</b>
        <span>
          {lookOf(host)}, risk {host.risk.toFixed(2)}
          {host.lemon >= 0.3 ? `, lemon ${host.lemon.toFixed(2)}` : ""}
        </span>
        {host.reasons?.map((reason) => (
          <span key={reason} class="soft">
            {reasonWords(reason, props.now).text}
          </span>
        ))}
      </div>
    </>
  );
}

/** What the colours mean, and a filter: each is a link to the hosts of that state. */
export function HostLegend(props: {
  counts: Readonly<Record<Look, number>>;
  chosen: ReadonlySet<Look>;
  addressOf: (looks: readonly Look[]) => string;
  meanings: Readonly<Record<Look, string>>;
}) {
  const { counts, chosen } = props;
  return (
    <ul class="host-legend" aria-label="Hosts by state">
      {LOOKS.map((look) => {
        const next = chosen.has(look)
          ? LOOKS.filter((one) => chosen.has(one) && one !== look)
          : LOOKS.filter((one) => chosen.has(one) || one === look);
        return (
          <li key={look}>
            <a
              href={props.addressOf(next)}
              aria-current={chosen.has(look) ? "true" : undefined}
              class={counts[look] ? "" : "none"}
              title={`${look}: ${props.meanings[look]}`}
            >
              <Mark look={look} /> {look}{" "}
              <b>
                {counts[look].toLocaleString("en")}
                <span class="unseen"> {count(counts[look], "host").replace(/^\S+ /, "")}</span>
              </b>
            </a>
          </li>
        );
      })}
    </ul>
  );
}

/** A cell as in the drawing. */
export function Mark({ look }: { look: Look }) {
  return <i class={`host-mark ${look}`} aria-hidden="true" />;
}
