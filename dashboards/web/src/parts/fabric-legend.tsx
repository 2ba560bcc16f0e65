/** What colours and strokes of the fabric's drawing mean. */
import { stepColour } from "./fabric-paint";
import { BUCKETS, bucketOf, QUANTITIES, type Quantity } from "./fabric-scale";

export function FabricLegend(props: { quantity: Quantity; hasCells: boolean; dark: boolean }) {
  const { quantity, hasCells, dark } = props;
  const words = QUANTITIES[quantity];
  const colours = Array.from({ length: BUCKETS }, (_, bucket) => stepColour(bucket, dark));
  return (
    <div class="fabric-legend">
      <span class="soft">{words.hint}</span>
      <span class="fabric-ramp">
        <i style={{ background: `linear-gradient(90deg, ${colours.join(",")})` }} />
        {words.ticks.map((tick) => (
          <small
            key={tick}
            style={{ left: `${(bucketOf(quantity, tick) / (BUCKETS - 1)) * 100}%` }}
          >
            {words.show(tick)}
          </small>
        ))}
      </span>
      <span class={`fabric-key down ${hasCells ? "cell" : ""}`}>down</span>
      <span class={`fabric-key none ${hasCells ? "cell" : ""}`}>no readings</span>
      <span class="fabric-key culprit">culprit</span>
    </div>
  );
}
