/** A slider over the moments of a range: how bad each was, and who was at fault when. */
import { useEffect, useState } from "preact/hooks";
import { duration, moment } from "../format";
import { lanesOf, type Stretch } from "./fabric-lanes";
import { stepColour } from "./fabric-paint";

export interface FabricTimeProps {
  /** Unix seconds at which each frame ends. */
  readonly times: readonly number[];
  readonly stepSeconds: number;
  readonly index: number;
  /** Whether the last frame is now. */
  readonly isFollowing: boolean;
  readonly isAtEnd: boolean;
  /** For each frame the step of the ramp of its worst link, and what that is in words. */
  readonly peaks: readonly {
    readonly bucket: number;
    readonly words: string;
    readonly down: number;
    /** It is still being asked for. */
    readonly isAwaited: boolean;
  }[];
  readonly incidents: readonly (Stretch & { readonly href: string; readonly summary: string })[];
  readonly dark: boolean;
  /** Undefined: the end of the range. */
  readonly onIndex: (index: number | undefined) => void;
}

const PLAY_MS = 300;
const LANES_MOST = 3;

export function FabricTime(props: FabricTimeProps) {
  const { times, index } = props;
  const [isPlaying, setPlaying] = useState(false);
  const last = times.length - 1;
  // biome-ignore lint/correctness/useExhaustiveDependencies: each frame arms the timer for the next
  useEffect(() => {
    if (!isPlaying) return;
    if (index >= last) {
      setPlaying(false);
      return;
    }
    const timer = setTimeout(
      () => props.onIndex(index + 1 >= last ? undefined : index + 1),
      PLAY_MS,
    );
    return () => clearTimeout(timer);
  }, [isPlaying, index, last]);
  const play = () => {
    if (!isPlaying && index >= last) props.onIndex(0);
    setPlaying(!isPlaying);
  };
  const peak = props.peaks[index];
  const time = times[index] ?? 0;
  const worst = peak?.isAwaited ? ", being asked" : peak ? `, worst link ${peak.words}` : "";
  const words = `${moment(time)}${worst}`;
  const isAwaited = props.peaks.some((one) => one.isAwaited);
  return (
    <div class="fabric-time">
      <button
        type="button"
        onClick={play}
        aria-label={isPlaying ? "Stop" : "Play"}
        title={isPlaying ? "Stop" : "Play"}
      >
        <span aria-hidden="true">{isPlaying ? "❚❚" : "▶"}</span>
      </button>
      <div class="fabric-track">
        <Incidents {...props} />
        <div class="fabric-strip" aria-hidden="true">
          {props.peaks.map((one, place) => (
            <i
              key={times[place]}
              class={one.isAwaited ? "awaited" : one.down ? "down" : ""}
              style={{ background: one.bucket < 0 ? "none" : stepColour(one.bucket, props.dark) }}
            />
          ))}
        </div>
        <input
          type="range"
          min={0}
          max={Math.max(0, last)}
          value={index}
          aria-label="Moment"
          aria-valuetext={words}
          title="Arrow keys go moment by moment"
          onInput={(event) => {
            const chosen = Number(event.currentTarget.value);
            setPlaying(false);
            props.onIndex(chosen >= last ? undefined : chosen);
          }}
        />
      </div>
      <output class="fabric-moment">
        {props.isAtEnd && props.isFollowing ? <b>Now</b> : <b>{moment(time)}</b>}
        <small class="soft">
          {isAwaited ? "asking for others" : `mean of ${duration(props.stepSeconds)}`}
        </small>
      </output>
      {!props.isAtEnd && (
        <button type="button" onClick={() => props.onIndex(undefined)}>
          {props.isFollowing ? "Now" : "End"}
        </button>
      )}
    </div>
  );
}

/** Who was at fault when, above the strip; each leads to its story. */
function Incidents({ times, stepSeconds, incidents }: FabricTimeProps) {
  const from = (times[0] ?? 0) - stepSeconds;
  const length = Math.max(1, (times.at(-1) ?? 0) - from);
  const { lanes, leftOut } = lanesOf(incidents, from, from + length, LANES_MOST);
  if (!lanes.length) return null;
  return (
    <>
      {lanes.map((lane) => (
        <div class="fabric-lane" key={lane[0]?.href}>
          {lane.map((one) => (
            <a
              key={one.href}
              href={one.href}
              title={one.summary}
              style={{
                left: `${((Math.max(from, one.from) - from) / length) * 100}%`,
                width: `${((Math.min(from + length, one.to) - Math.max(from, one.from)) / length) * 100}%`,
              }}
            >
              {one.label}
            </a>
          ))}
        </div>
      ))}
      {leftOut > 0 && <small class="soft">{leftOut} more incidents at these times</small>}
    </>
  );
}
