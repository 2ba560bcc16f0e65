/** How long the browser may take to begin reading; an address kept for ever keeps the file in memory. */
const KEPT_MS = 60_000;

/** Offer content as a file. */
export function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEPT_MS);
}
