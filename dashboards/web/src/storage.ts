/** What the browser keeps for the reader. Tests have none, and a report in a file may not be allowed any. */
function found(): Storage | undefined {
  try {
    return globalThis.localStorage;
  } catch {
    // A build server that shows the file within another page forbids it.
    return undefined;
  }
}

export const storage: Storage | undefined = found();
