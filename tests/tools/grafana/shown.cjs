// What Grafana's own libraries make of answers: reads panels with their answers as JSON from stdin, and
// prints what would stand there: of a table its columns and cells, else each series' name and value.
//
// Ours is only what the data source does before (`frames`): the libraries begin with frames. Values that
// JSON has no number for are texts.

const { data } = require("./common.cjs");

const VIEWS = new Set(["stat", "bargauge"]);
const theme = data.createTheme();
const said = [];
for (const level of ["warn", "error"]) console[level] = (...words) => said.push(words.map(String).join(" "));

data.setTimeZoneResolver?.(() => "utc");
data.standardTransformersRegistry.setInit(() =>
  // One stands there under two names.
  [...new Map(Object.values(data.standardTransformers).map((one) => [one.id, one])).values()].map((one) => ({
    id: one.id, name: one.name, transformation: async () => one, editor: null, description: "",
  })),
);

const STANDARD = {
  unit: data.unitOverrideProcessor, min: data.numberOverrideProcessor, max: data.numberOverrideProcessor,
  decimals: data.numberOverrideProcessor, displayName: data.displayNameOverrideProcessor,
  noValue: data.stringOverrideProcessor, thresholds: data.thresholdsOverrideProcessor,
  mappings: data.valueMappingsOverrideProcessor, links: data.dataLinksOverrideProcessor,
  color: data.identityOverrideProcessor,
};
const item = (path, process, isCustom) => ({
  id: isCustom ? `custom.${path}` : path, path, name: path, isCustom, process, shouldApply: () => true,
});

// The fields that a panel of this kind has: Grafana's own, and those that the board sets beside them.
function registryOf(panel) {
  const { defaults, overrides } = panel.fieldConfig;
  const named = overrides.flatMap((one) => one.properties.map((each) => each.id));
  const custom = new Set([
    ...Object.keys(defaults.custom ?? {}),
    ...named.filter((id) => id.startsWith("custom.")).map((id) => id.slice("custom.".length)),
  ]);
  return new data.FieldConfigOptionsRegistry(() => [
    ...Object.entries(STANDARD).map(([path, process]) => item(path, process, false)),
    ...[...custom].map((path) => item(path, data.identityOverrideProcessor, true)),
  ]);
}

const legendOf = (target, labels) =>
  target.legendFormat && target.legendFormat !== "__auto"
    ? data.renderLegendFormat(target.legendFormat, labels)
    : data.formatLabels(labels, target.expr, true);

function seriesFrames(target) {
  return target.answer.map(({ labels, points }) => {
    const name = legendOf(target, labels);
    return data.createDataFrame({
      refId: target.refId,
      name,
      fields: [
        { name: "Time", type: data.FieldType.time, values: points.map(([at]) => at * 1000), config: {} },
        {
          name: "Value", type: data.FieldType.number, labels,
          values: points.map(([, value]) => Number(value)), config: { displayNameFromDS: name },
        },
      ],
    });
  });
}

// One frame of all labels, the moment and the value, as the data source answers `format: table`.
function tableFrame(target, isOneOfSeveral) {
  const names = [...new Set(target.answer.flatMap((one) => Object.keys(one.labels)))].sort();
  const last = (one) => one.points[one.points.length - 1];
  return data.createDataFrame({
    refId: target.refId,
    fields: [
      { name: "Time", type: data.FieldType.time, values: target.answer.map((one) => last(one)[0] * 1000), config: {} },
      ...names.map((name) => ({
        name, type: data.FieldType.string, config: { filterable: true },
        values: target.answer.map((one) => one.labels[name] ?? ""),
      })),
      {
        name: isOneOfSeveral ? `Value #${target.refId}` : "Value", type: data.FieldType.number,
        values: target.answer.map((one) => Number(last(one)[1])), config: {},
      },
    ],
  });
}

function frames(panel) {
  const answered = panel.targets.filter((target) => target.answer.length > 0);
  return answered.flatMap((target) =>
    target.format === "table" ? [tableFrame(target, answered.length > 1)] : seriesFrames(target),
  );
}

const transformed = (panel) =>
  new Promise((resolve, reject) => {
    const context = { interpolate: (text) => text };
    data.transformDataFrame(panel.transformations, frames(panel), context).subscribe({ next: resolve, error: reject });
  });

const overridden = (panel, found) =>
  data.applyFieldOverrides({
    data: found, fieldConfig: panel.fieldConfig, replaceVariables: (text) => text, theme,
    timeZone: "utc", fieldConfigRegistry: registryOf(panel),
  });

const cell = (field, value) => {
  const shown = field.display(value);
  return { text: data.formattedValueToString(shown), colour: shown.color ?? null };
};

const tableOf = (frame) => {
  const fields = frame.fields.filter((field) => !field.config.custom?.hidden);
  return {
    columns: fields.map((field) => data.getFieldDisplayName(field, frame)),
    rows: Array.from({ length: frame.length }, (_, row) => fields.map((field) => cell(field, field.values[row]))),
    styles: fields.map((field) => field.config.custom?.cellOptions?.type ?? "auto"),
  };
};

function valuesOf(panel, found) {
  if (VIEWS.has(panel.type)) {
    return data
      .getFieldDisplayValues({
        data: found, fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions,
        replaceVariables: (text) => text, theme, timeZone: "utc",
      })
      .map(({ display }) => ({
        name: display.title ?? "", text: data.formattedValueToString(display), colour: display.color ?? null,
      }));
  }
  return found.map((frame) => {
    const field = frame.fields.find((one) => one.type === data.FieldType.number);
    const name = data.getFieldDisplayName(field, frame, found);
    const { last } = data.reduceField({ field, reducers: ["last"] });
    return { name, ...cell(field, last) };
  });
}

async function shown(panel) {
  const before = said.length;
  const found = overridden(panel, await transformed(panel));
  const made = panel.type === "table" ? { tables: found.map(tableOf) } : { values: valuesOf(panel, found) };
  return { board: panel.board, title: panel.title, type: panel.type, ...made, said: said.slice(before) };
}

async function main() {
  const panels = JSON.parse(require("node:fs").readFileSync(0, "utf-8"));
  const found = [];
  for (const panel of panels) found.push(await shown(panel));
  process.stdout.write(JSON.stringify(found));
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
