import type { ComponentChildren, Ref } from "preact";

/** A card with a heading; `aside` stands at the heading's right. */
export function Panel(props: {
  title?: string;
  hint?: string;
  aside?: ComponentChildren;
  tone?: "bad" | "warn" | "good";
  class?: string;
  /** For links that lead to it. */
  place?: Ref<HTMLElement>;
  children: ComponentChildren;
}) {
  return (
    <section
      ref={props.place ?? null}
      class={`panel ${props.tone ?? ""} ${props.class ?? ""}`}
      aria-label={props.title}
    >
      {(props.title || props.aside) && (
        <header>
          {props.title && <h2>{props.title}</h2>}
          {props.hint && <span class="soft">{props.hint}</span>}
          {props.aside && <div class="aside">{props.aside}</div>}
        </header>
      )}
      {props.children}
    </section>
  );
}

/** A number with its name; a link to `href`, where more is shown. */
export function Tile(props: {
  label: string;
  value: string;
  hint?: string;
  tone?: string;
  href?: string;
}) {
  const inside = (
    <>
      <span class="soft">{props.label}</span>
      <b>{props.value}</b>
      {props.hint && <small class="soft">{props.hint}</small>}
    </>
  );
  return props.href ? (
    <a class={`tile ${props.tone ?? ""}`} href={props.href}>
      {inside}
    </a>
  ) : (
    <div class={`tile ${props.tone ?? ""}`}>{inside}</div>
  );
}

export function Badge({ tone, children }: { tone?: string; children: ComponentChildren }) {
  return <span class={`badge ${tone ?? ""}`}>{children}</span>;
}
