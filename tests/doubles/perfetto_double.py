"""A page that takes traces as Perfetto's UI does (its documentation, "Deep linking to the UI").

It answers "PING" with "PONG", takes ``{perfetto: {buffer, title, fileName}}`` and writes what it
got into its document. It begins to listen only after a while, as a page that is large does.
"""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator

PAGE = b"""<!doctype html><title>double</title><p id="got">nothing yet</p><script>
setTimeout(() => addEventListener("message", ({ data, source, origin }) => {
  if (data === "PING") source.postMessage("PONG", origin);
  if (!data.perfetto) return;
  const { buffer, title, fileName } = data.perfetto;
  const trace = JSON.parse(new TextDecoder().decode(buffer));
  document.querySelector("#got").textContent = JSON.stringify({
    title, fileName, origin, events: trace.traceEvents.length, hasOpener: opener !== null });
}), 500);
</script>"""


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class' name
        """Tests have their own log."""


@contextlib.contextmanager
def perfetto_double() -> Iterator[str]:
    """The address of one."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
