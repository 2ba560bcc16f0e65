import { defineConfig } from "vite";

/** While the page is written: the service that is asked. */
const SERVICE = "http://127.0.0.1:9470";

// The built page goes into the package that the service serves from. Every name below assets/
// holds a hash of its content, so that a browser may keep it for ever.
export default defineConfig({
  base: "./",
  build: {
    outDir: "../page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 600,
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: {
    proxy: Object.fromEntries(
      ["/v1", "/api", "/readyz", "/metrics", "/runbooks", "/docs"].map((path) => [path, SERVICE]),
    ),
  },
});
