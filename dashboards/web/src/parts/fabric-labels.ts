/** Where the words beside culprits stand. Pure. */
import type { Box } from "./fabric-layout";
import type { Size } from "./fabric-view";

/** Labels beyond these would cover the drawing; the others keep their halo. */
export const LABELS_MOST = 12;
const LABEL_HEIGHT = 18;

/** Beside the ring, below or above it, wherever nothing lies yet; else further down. */
export function placeForLabel(
  ring: Box,
  w: number,
  isNode: boolean,
  size: Size,
  taken: readonly Box[],
): Box {
  const [middle, centre] = [ring.x + ring.w / 2 - w / 2, ring.y + ring.h / 2 - LABEL_HEIGHT / 2];
  const x = Math.min(Math.max(2, middle), size.width - w - 2);
  const beside = [
    { x: ring.x + ring.w + 4, y: centre },
    { x: ring.x - w - 4, y: centre },
  ];
  const below = { x, y: ring.y + ring.h + 2 };
  const above = { x, y: ring.y - LABEL_HEIGHT - 2 };
  // Nodes stand side by side: there is more room below.
  const wishes = isNode ? [below, above, ...beside] : [...beside, below, above];
  const boxes = wishes.map((place) => ({ ...place, w, h: LABEL_HEIGHT }));
  const isFree = (box: Box) =>
    box.x >= 2 &&
    box.x + w <= size.width - 2 &&
    box.y >= 2 &&
    box.y + LABEL_HEIGHT <= size.height - 2 &&
    !taken.some((one) => isOn(one, box));
  let box = boxes.find(isFree) ?? { ...below, w, h: LABEL_HEIGHT };
  for (let tries = 0; tries < LABELS_MOST && taken.some((one) => isOn(one, box)); tries++)
    box = { ...box, y: box.y + LABEL_HEIGHT + 2 };
  return box;
}

function isOn(one: Box, other: Box): boolean {
  return (
    one.x < other.x + other.w &&
    other.x < one.x + one.w &&
    one.y < other.y + other.h &&
    other.y < one.y + one.h
  );
}
