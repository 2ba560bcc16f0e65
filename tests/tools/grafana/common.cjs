// Grafana's libraries in Node, which has no browser's `navigator`.
globalThis.navigator ??= { language: "en-GB", languages: ["en-GB"] };

const data = require("@grafana/data");
const schema = require("@grafana/schema");

// Only now: what they load takes a window for a browser, while transformations look for one at work.
globalThis.window ??= globalThis;

module.exports = { data, schema };
