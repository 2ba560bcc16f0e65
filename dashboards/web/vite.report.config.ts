import { defineConfig, type Plugin } from "vite";

/**
 * Puts the script and the styles into the page itself, and allows that one script by its hash: the report
 * of `diagnose` is one file that opens anywhere and sends no request.
 */
function inOneFile(): Plugin {
  return {
    name: "in-one-file",
    enforce: "post",
    async generateBundle(_, bundle) {
      let [script, styles] = ["", ""];
      for (const [name, file] of Object.entries(bundle)) {
        if (file.type === "chunk") script += file.code;
        else if (name.endsWith(".css")) styles += file.source;
        else continue;
        delete bundle[name];
      }
      // An element ends at its first end tag, also where that stands in a string.
      const safe = script.replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
      const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(safe));
      const allowed = btoa(String.fromCharCode(...new Uint8Array(hash)));
      const policy = [
        "default-src 'none'",
        `script-src 'sha256-${allowed}'`,
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
      ].join("; ");
      for (const file of Object.values(bundle)) {
        if (file.type !== "asset" || !file.fileName.endsWith(".html")) continue;
        // As functions: what a replacement text may hold (`$&`) stands in scripts, too.
        file.source = String(file.source)
          .replace(/\s*<script type="module"[^>]*src=[^>]*><\/script>/, "")
          .replace(/\s*<link rel="stylesheet"[^>]*>/g, "")
          .replace(
            "<head>",
            () => `<head>\n    <meta http-equiv="Content-Security-Policy" content="${policy}" />`,
          )
          .replace("</head>", () => `  <style>${styles}</style>\n  </head>`)
          .replace("</body>", () => `  <script type="module">${safe}</script>\n  </body>`);
      }
    },
  };
}

/** Built after the page itself, into the same folder. */
export default defineConfig({
  base: "./",
  build: {
    outDir: "../page",
    emptyOutDir: false,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: Number.MAX_SAFE_INTEGER,
    chunkSizeWarningLimit: 600,
    cssCodeSplit: false,
    rolldownOptions: { input: "report.html", output: { codeSplitting: false } },
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  plugins: [inOneFile()],
});
