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
    // Every file is a request of its own, and a view begins when the last of its files is there: what
    // several views share is one file, and the styles of all are one.
    cssCodeSplit: false,
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            // The page's own styles stand first: those of views change them.
            { name: "first", test: /\/style\/page\.css/, priority: 1 },
            { name: "shared", test: /\/src\/|preact/, minShareCount: 2 },
          ],
        },
      },
    },
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: {
    proxy: Object.fromEntries(
      ["/v1", "/api", "/readyz", "/metrics", "/runbooks", "/docs"].map((path) => [path, SERVICE]),
    ),
  },
});
