/** What the browser keeps for the reader. Tests have none, and a report in a file may not be allowed any. */
function found(): Storage | undefined {
  try {
    return globalThis.localStorage;
  } catch {
    // Whoever shows a file within another page, as build servers do, forbids it.
    return undefined;
  }
}

export const storage: Storage | undefined = found();
