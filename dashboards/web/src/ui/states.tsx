/** What a reader sees while there is nothing to see, and why. */
import type { ComponentChildren } from "preact";
import { ago, duration } from "../format";
import type { Resource } from "../resource";
import { ticked } from "../time";

/** A question that takes longer is said to be slow, so that a reader can tell it from a page that hangs. */
export const SLOW_SECONDS = 10;

/** A view whose answers take long says so when what it shows is older. */
const STALE_SECONDS = 60;

/** Pixels on a wide page and on a phone, where the same takes more lines. */
export interface Room {
  readonly wide: number;
  readonly narrow: number;
}

/** For an element of the class `reserved`, which is at least that high; a number: on both alike. */
export function styleOf(room: Room | number): Record<string, string> {
  const { wide, narrow } = typeof room === "number" ? { wide: room, narrow: room } : room;
  return { "--wide": `${wide}px`, "--narrow": `${narrow}px` };
}

/** `room`: what comes will need at least, so that what is below stays where it is. */
export function Loading(props: { what: string; since?: number | undefined; room?: Room | number }) {
  const { what, since, room } = props;
  return (
    <p
      class={`state loading ${room ? "reserved" : ""}`}
      role="status"
      style={room ? styleOf(room) : {}}
    >
      <span class="spinner" aria-hidden="true" /> Asking for {what} …{" "}
      {isSlow(since) && <span>for {duration(Math.round(ticked.value - since))}</span>}
    </p>
  );
}

function isSlow(since: number | undefined): since is number {
  return since !== undefined && ticked.value - since >= SLOW_SECONDS;
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="state empty" role="status">
      <b>{title}</b>
      {children && <div class="soft">{children}</div>}
    </div>
  );
}

export function Failed({ resource, what }: { resource: Resource<unknown>; what: string }) {
  const { failure } = resource;
  if (!failure) return null;
  return (
    <div class="state failed" role="alert">
      <b>
        {failure.isUnreachable ? "The service does not answer" : `No ${what}: ${failure.title}`}
      </b>
      {failure.detail && <div>{failure.detail}</div>}
      <button type="button" onClick={resource.reload}>
        Try again
      </button>
    </div>
  );
}

/** A line above what is still shown although it could not be asked for again, or takes long to be. */
export function Stale({ resource }: { resource: Resource<unknown> }) {
  const { failure, answeredAt, askedAt } = resource;
  if (answeredAt === undefined) return null;
  const isLate =
    resource.isLoading && isSlow(askedAt) && ticked.value - answeredAt >= STALE_SECONDS;
  if (!failure && !isLate) return null;
  return (
    <p class="state stale" role="status">
      As it was {ago(answeredAt, ticked.value)}:{" "}
      {failure ? failure.detail || failure.title : "the next answer takes long"}
    </p>
  );
}

/** The states of a resource around what is drawn from its data. */
export function Shown<T>(props: {
  resource: Resource<T>;
  what: string;
  isEmpty?: (data: T) => boolean;
  empty?: ComponentChildren;
  room?: Room | number;
  children: (data: T) => ComponentChildren;
}) {
  const { resource, what } = props;
  if (resource.data === undefined)
    return resource.failure ? (
      <Failed resource={resource} what={what} />
    ) : (
      <Loading
        what={what}
        since={resource.askedAt}
        {...(props.room === undefined ? {} : { room: props.room })}
      />
    );
  const isEmpty = props.isEmpty?.(resource.data) ?? false;
  return (
    <>
      <Stale resource={resource} />
      {isEmpty ? (props.empty ?? <Empty title={`No ${what}`} />) : props.children(resource.data)}
    </>
  );
}

/** Drawn when those above it have their answers: what comes later would push it down while it is read. */
export function Below(props: { above: readonly Resource<unknown>[]; children: ComponentChildren }) {
  const isAwaited = props.above.some((one) => one.data === undefined && !one.failure);
  return isAwaited ? null : props.children;
}
