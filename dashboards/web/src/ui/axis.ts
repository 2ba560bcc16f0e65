/** Where an axis ends. Pure. */

/** The next of 1, 2, 5, 10, 20 … that no value exceeds; 1 where there are none but nought. */
export function roundTop(most: number): number {
  if (!(most > 0) || !Number.isFinite(most)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= most * (1 - 1e-9)) ?? most;
}
