/** The ports and GPUs of a host, one row each: how it stands, how fast it is, what goes wrong. */
import type { ComponentChildren } from "preact";
import type { Device, HostHealthWhole, HostParts, JobOnHost, Part, Port } from "../api/hosts";
import { digits, percent, si } from "../format";
import { href } from "../route";
import { Badge, Panel } from "../ui/panel";
import { Empty } from "../ui/states";
import { Table } from "../ui/table";
import { Mark } from "./host-grid";
import { type Curves, clockWords, mean, PORT_ERRORS, summed } from "./host-questions";
import { HostSpark } from "./host-spark";
import { toneOf } from "./host-words";
import "../style/hosts.css";

export interface Clock {
  /** Unix seconds. */
  readonly from: number;
  readonly to: number;
}

/** The state of a part by what speaks against it; nothing where nothing does. */
function PartState({ part }: { part: Part | undefined }) {
  if (!part || (part.state === "healthy" && !part.risk)) return <span class="soft">healthy</span>;
  const why = part.reasons.map((reason) => reason.text).join("\n");
  const [first] = part.reasons;
  const inside = (
    <span class="host-state" title={why}>
      <Mark look={part.state} />
      <Badge tone={toneOf(part.state)}>{part.state}</Badge>
      <span class="soft">{part.risk.toFixed(2)}</span>
    </span>
  );
  return first?.incident ? <a href={href(["incident", first.incident])}>{inside}</a> : inside;
}

// --- ports -----------------------------------------------------------------------------------------

interface PortRow {
  readonly key: string;
  readonly device: string;
  readonly port: string;
  /** The interface: of an RDMA port the one above it. Empty: none. */
  readonly netdev: string;
  readonly known: Port | undefined;
  readonly part: Part | undefined;
  readonly cable: string;
}

function portRows(parts: HostParts, health: HostHealthWhole): PortRow[] {
  const { host } = parts.host;
  const byName = new Map([...health.links, ...health.devices].map((part) => [part.name, part]));
  const ports = parts.ports.map((known) => ({
    key: known.id,
    device: known.device,
    port: known.port,
    netdev: known.netdev ?? "",
    known,
    part: worse(byName.get(known.id), byName.get(`${host}/${known.device}`)),
    cable: parts.cables.get(known.id) ?? "",
  }));
  const behind = new Set(ports.map((row) => row.netdev));
  const nics = parts.host.devices
    .filter((device) => device.kind === "nic" && !behind.has(device.device))
    .map((device) => ({
      key: `nic ${device.device}`,
      device: device.device,
      port: "",
      netdev: device.device,
      known: undefined,
      part: byName.get(`${host}/${device.device}`),
      cable: "",
    }));
  return [...ports, ...nics];
}

function worse(a: Part | undefined, b: Part | undefined): Part | undefined {
  return !a || (b && b.risk > a.risk) ? b : a;
}

function speedOf(row: PortRow, curves: Curves): number | undefined {
  return row.known?.rate_bits_per_second ?? curves.last("nic_speed", row.netdev);
}

function Traffic(props: { row: PortRow; what: "sent" | "received"; curves: Curves; clock: Clock }) {
  const { row, what, curves, clock } = props;
  const own = curves.of(what, row.device, row.port);
  const curve = own.values.length ? own : curves.of(`nic_${what}`, row.netdev);
  const speed = speedOf(row, curves);
  const last = curve.values.at(-1);
  return (
    <>
      <HostSpark
        label={`${row.device} ${what}`}
        curve={curve}
        format={(value) => si(value * 8, "b/s")}
        {...clock}
        {...(speed ? { top: speed / 8 } : {})}
      />
      {speed && last !== undefined ? (
        <span class="soft"> {percent((last * 8) / speed)}</span>
      ) : null}
    </>
  );
}

function Errors({ row, curves, clock }: { row: PortRow; curves: Curves; clock: Clock }) {
  const found = Object.entries(PORT_ERRORS).map(([what, word]) => ({
    word,
    curve: what.startsWith("nic_")
      ? curves.of(what, row.netdev)
      : curves.of(what, row.device, row.port),
  }));
  const seen = found
    .filter(({ curve }) => mean(curve) > 0)
    .sort((a, b) => mean(b.curve) - mean(a.curve));
  if (!found.some(({ curve }) => curve.values.length)) return <span class="soft">–</span>;
  if (!seen.length) return <span class="soft">none</span>;
  const sum = summed(seen.map(({ curve }) => curve));
  return (
    <>
      <HostSpark
        label={`Errors of ${row.device}`}
        curve={sum}
        format={(value) => `${si(value, "")}/s`}
        tone="bad"
        {...clock}
      />
      {!sum.values.at(-1) && (
        <span class="soft"> over; up to {si(Math.max(...sum.values), "")}/s</span>
      )}
      <div class="soft">{[...new Set(seen.map(({ word }) => word))].slice(0, 3).join(", ")}</div>
    </>
  );
}

function Paused({ row, curves }: { row: PortRow; curves: Curves }) {
  const stopped = mean(curves.of("nic_paused", row.netdev));
  const stops = mean(curves.of("nic_pausing", row.netdev));
  if (Number.isNaN(stopped) && Number.isNaN(stops)) return <span class="soft">–</span>;
  if (!(stopped > 0.001) && !(stops > 0.001)) return <span class="soft">no</span>;
  return (
    <>
      {stopped > 0.001 && <div>{percent(stopped)} stopped</div>}
      {stops > 0.001 && <div class="bad-text">stops others {percent(stops)}</div>}
    </>
  );
}

const linkWords = (row: PortRow, curves: Curves): string =>
  row.known?.state ??
  ({ 0: "down", 1: "up" } as const)[curves.last("nic_up", row.netdev) ?? -1] ??
  "–";

function Named(props: { title: string; children?: ComponentChildren }) {
  return (
    <>
      <b>{props.title}</b>
      <div class="soft">{props.children}</div>
    </>
  );
}

export function PortTable(props: {
  parts: HostParts;
  health: HostHealthWhole;
  curves: Curves;
  clock: Clock;
  marked: string;
}) {
  const { parts, health, curves, clock } = props;
  const rows = portRows(parts, health);
  return (
    <Panel
      title="Ports and links"
      hint="Newest value, and the time above as a line; full height is the link's speed"
    >
      {rows.length ? (
        <Table
          label="Ports and links"
          noun="port"
          rows={rows}
          keyOf={(row) => row.key}
          isMarked={(row) =>
            props.marked !== "" && (row.device === props.marked || row.netdev === props.marked)
          }
          columns={[
            {
              name: "Port",
              show: (row) => (
                <Named title={row.port ? `${row.device} ${row.port}` : row.device}>
                  {row.netdev !== row.device && row.netdev}
                  {row.part?.rail !== null &&
                    row.part?.rail !== undefined &&
                    ` rail ${row.part.rail}`}
                </Named>
              ),
              by: (row) => row.key,
            },
            {
              name: "Health",
              show: (row) => <PartState part={row.part} />,
              by: (row) => row.part?.risk ?? 0,
            },
            {
              name: "Link",
              show: (row) => (
                <>
                  <div class={linkWords(row, curves) === "down" ? "bad-text" : ""}>
                    {linkWords(row, curves)}, {si(speedOf(row, curves), "b/s")}
                  </div>
                  {row.cable && (
                    <a href={href(["fabric"], { focus: row.key })} title="Show it in the fabric">
                      {cableWords(row.cable)}
                    </a>
                  )}
                </>
              ),
            },
            {
              name: "Sent",
              show: (row) => <Traffic row={row} what="sent" curves={curves} clock={clock} />,
            },
            {
              name: "Received",
              show: (row) => <Traffic row={row} what="received" curves={curves} clock={clock} />,
            },
            {
              name: "Errors",
              show: (row) => <Errors row={row} curves={curves} clock={clock} />,
            },
            { name: "Paused", show: (row) => <Paused row={row} curves={curves} /> },
          ]}
        />
      ) : (
        <Empty title="No port of this host is known">
          An agent reads them from <code>/sys/class/infiniband</code> and{" "}
          <code>/sys/class/net</code>.
        </Empty>
      )}
    </Panel>
  );
}

/** `leaf1 Ethernet0` of `leaf1/leaf1/Ethernet0`. */
function cableWords(id: string): string {
  const [host = "", device = "", port = ""] = id.split("/").map(decodeURIComponent);
  return [host, ...(device === host ? [] : [device]), port].filter(Boolean).join(" ");
}

// --- GPUs ------------------------------------------------------------------------------------------

function rankOf(jobs: readonly JobOnHost[], gpu: string) {
  for (const { job, ranks } of jobs) {
    const rank = ranks.find((one) => one.gpu === gpu);
    if (rank && job.state === "running") return { job: job.id, rank: rank.rank };
  }
  return undefined;
}

export function GpuTable(props: {
  gpus: readonly Device[];
  health: HostHealthWhole;
  jobs: readonly JobOnHost[];
  curves: Curves;
  clock: Clock;
  marked: string;
}) {
  const { health, curves, clock } = props;
  if (!props.gpus.length) return null;
  const byName = new Map(health.gpus.map((part) => [part.name, part]));
  const gpus = [...props.gpus].sort((a, b) => Number(a.device) - Number(b.device));
  return (
    <Panel title="GPUs" hint="Newest value, and the time above as a line">
      <Table
        label="GPUs"
        noun="GPU"
        rows={gpus}
        keyOf={(gpu) => gpu.device}
        isMarked={(gpu) => gpu.device === props.marked}
        columns={[
          {
            name: "GPU",
            show: (gpu) => <Named title={gpu.device}>{gpu.attributes.model}</Named>,
            by: (gpu) => Number(gpu.device),
          },
          {
            name: "Health",
            show: (gpu) => <PartState part={byName.get(`${health.host}/${gpu.device}`)} />,
            by: (gpu) => byName.get(`${health.host}/${gpu.device}`)?.risk ?? 0,
          },
          { name: "Works for", show: (gpu) => <Rank rank={rankOf(props.jobs, gpu.device)} /> },
          {
            name: "Busy",
            show: (gpu) => (
              <HostSpark
                label={`GPU ${gpu.device} busy`}
                curve={curves.of("busy", gpu.device)}
                format={percent}
                top={1}
                {...clock}
              />
            ),
          },
          {
            name: "Clock",
            show: (gpu) => {
              const held = clockWords(curves.last("held", gpu.device));
              return (
                <>
                  <HostSpark
                    label={`Clock of GPU ${gpu.device}`}
                    curve={curves.of("hertz", gpu.device)}
                    format={(value) => si(value, "Hz")}
                    tone={held ? "bad" : ""}
                    {...clock}
                  />
                  {held && <div class="bad-text">{held}</div>}
                </>
              );
            },
          },
          {
            name: "Heat",
            show: (gpu) => (
              <HostSpark
                label={`Temperature of GPU ${gpu.device}`}
                curve={curves.of("celsius", gpu.device)}
                format={(value) => `${digits(value)} °C`}
                top={100}
                {...clock}
              />
            ),
          },
          {
            name: "Power",
            show: (gpu) => si(curves.last("watts", gpu.device), "W"),
            by: (gpu) => curves.last("watts", gpu.device) ?? Number.NaN,
            isNumber: true,
          },
          { name: "Errors", show: (gpu) => <GpuErrors gpu={gpu.device} curves={curves} /> },
        ]}
      />
    </Panel>
  );
}

function Rank({ rank }: { rank: { job: string; rank: number } | undefined }) {
  if (!rank) return <span class="soft">–</span>;
  return (
    <a href={href(["job", rank.job], { rank: rank.rank })}>
      {rank.job} rank {rank.rank}
    </a>
  );
}

function GpuErrors({ gpu, curves }: { gpu: string; curves: Curves }) {
  const [xid, ecc, replays] = ["xid", "ecc", "replays"].map((what) => curves.last(what, gpu));
  const [lanes, most] = [curves.last("lanes", gpu), curves.last("lanes_max", gpu)];
  const found = [
    xid ? `XID ${xid}` : "",
    ecc && ecc >= 0.5 ? `${Math.round(ecc)} uncorrected in memory` : "",
    replays ? `PCIe replays ${si(replays, "")}/s` : "",
    lanes && most && lanes < most ? `PCIe ${lanes} of ${most} lanes` : "",
  ].filter(Boolean);
  if (found.length) return <span class="bad-text">{found.join(", ")}</span>;
  return <span class="soft">{xid === undefined && ecc === undefined ? "–" : "none"}</span>;
}
