/** Questions about incidents, and about what else happened meanwhile. */
import { ask, type Page } from "./client";
import type { HostEvent } from "./hosts";
import type { Incident, IncidentShort } from "./incidents";

/** Incidents of one list; the list notes when there are more. The service keeps at most 200 open ones. */
export const OPEN_MAX = 200;

export interface Filter {
  readonly state?: string | undefined;
  readonly cause?: string | undefined;
  readonly job?: string | undefined;
  readonly host?: string | undefined;
  readonly switch?: string | undefined;
}

/** The latest first. */
export function listIncidents(
  filter: Filter,
  limit: number,
  abort: AbortSignal,
  after?: string,
): Promise<Page<IncidentShort>> {
  return ask("/v1/incidents", { ...filter, limit, after }, abort);
}

export function askIncident(id: string, abort: AbortSignal): Promise<Incident> {
  return ask(`/v1/incidents/${encodeURIComponent(id)}`, {}, abort);
}

/** Kinds of events that people act on; dumps and process groups are for detectors. */
const KINDS = ["link_down", "link_up", "link_rate", "link_flap", "gpu_xid", "xid"];

/** Events of a host or switch, the newest first. */
export function askTellingEvents(
  host: string,
  from: number,
  to: number,
  limit: number,
  abort: AbortSignal,
): Promise<Page<HostEvent>> {
  return ask("/v1/events", { host, from, to, limit, kind: KINDS }, abort);
}
