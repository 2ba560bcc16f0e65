/** What a reader sees while there is nothing to see, and why. */
import type { ComponentChildren } from "preact";
import { ago } from "../format";
import type { Resource } from "../resource";

export function Loading({ what }: { what: string }) {
  return (
    <p class="state loading" role="status">
      <span class="spinner" aria-hidden="true" /> Asking for {what} …
    </p>
  );
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

/** A line above what is still shown although it could not be asked for again. */
export function Stale({ resource }: { resource: Resource<unknown> }) {
  if (!resource.failure || resource.answeredAt === undefined) return null;
  return (
    <p class="state stale" role="status">
      As it was {ago(resource.answeredAt)}: {resource.failure.detail || resource.failure.title}
    </p>
  );
}

/** The states of a resource around what is drawn from its data. */
export function Shown<T>(props: {
  resource: Resource<T>;
  what: string;
  isEmpty?: (data: T) => boolean;
  empty?: ComponentChildren;
  children: (data: T) => ComponentChildren;
}) {
  const { resource, what } = props;
  if (resource.data === undefined)
    return resource.failure ? <Failed resource={resource} what={what} /> : <Loading what={what} />;
  const isEmpty = props.isEmpty?.(resource.data) ?? false;
  return (
    <>
      <Stale resource={resource} />
      {isEmpty ? (props.empty ?? <Empty title={`No ${what}`} />) : props.children(resource.data)}
    </>
  );
}
