// Prints what Grafana's libraries know by name: units, transformations, reducers, matchers, words of options.
// node registries.cjs > tests/fixtures/grafana/registries.json

const { data, schema } = require("./common.cjs");

const ids = (registry) => registry.list().map((one) => one.id);
const sorted = (values) => [...new Set(values)].sort();

const isEnum = (found) =>
  found !== null &&
  typeof found === "object" &&
  Object.keys(found).length > 0 &&
  Object.values(found).every((value) => ["string", "number"].includes(typeof value));

// TypeScript's numeric enums also hold their names by number.
const values = (found) =>
  sorted(Object.entries(found).filter(([name]) => !/^-?\d+$/.test(name)).map(([, value]) => value));

const hues = data.createTheme().visualization.hues;
const known = {
  package: `@grafana/data ${require("@grafana/data/package.json").version}`,
  colour_modes: sorted(ids(data.fieldColorModeRegistry)),
  colours: sorted(hues.flatMap((hue) => hue.shades.map((shade) => shade.name))),
  field_matchers: sorted(ids(data.fieldMatchers)),
  reducers: sorted(ids(data.fieldReducers)),
  transformations: sorted(Object.values(data.standardTransformers).map((one) => one.id)),
  units: sorted(data.getValueFormats().flatMap((group) => group.submenu.map((unit) => unit.value))),
  enums: Object.fromEntries(
    sorted(Object.keys(schema).concat("FieldConfigProperty"))
      .map((name) => [name, schema[name] ?? data[name]])
      .filter(([name, found]) => /^[A-Z]/.test(name) && isEnum(found))
      .map(([name, found]) => [name, values(found)]),
  ),
};

process.stdout.write(`${JSON.stringify(known, null, 1)}\n`);
