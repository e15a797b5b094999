// A panel's JSON and its frames into Grafana's own components. The state timeline alone is ours: Grafana's packages have none.

import {
  applyFieldOverrides, cacheFieldDisplayNames, DataFrame, dateTime, FieldConfigOptionsRegistry, FieldType, getDisplayProcessor, getDisplayValueAlignmentFactors,
  getFieldDisplayName, getFieldDisplayValues, GrafanaTheme2, standardTransformers, standardTransformersRegistry, ThresholdsMode, TimeRange, transformDataFrame,
} from "@grafana/data";
import { BarGauge, BigValue, TimeSeries, UPlotConfigBuilder, VizLegend, VizRepeater } from "@grafana/ui";
import { TableNG } from "@grafana/ui/unstable";
import { ReactNode } from "react";
import { firstValueFrom } from "rxjs";
import type { Mark } from "./asks";

export type Drawn = { panel: any; frames: DataFrame[]; range: TimeRange; marks: Mark[]; theme: GrafanaTheme2; width: number; height: number };

standardTransformersRegistry.setInit(() =>
  [standardTransformers.mergeTransformer, standardTransformers.organizeFieldsTransformer].map((transformation) =>
    ({ id: transformation.id, name: transformation.name, transformation: async () => transformation, imageDark: "", imageLight: "" }) as any));

/** Every setting of a field that our boards use; one that is not here is an error, not left out. */
const STANDARD = ["unit", "min", "max", "decimals", "displayName", "color", "thresholds", "mappings", "links", "noValue"];
const CUSTOM = [
  "align", "cellOptions", "inspect", "drawStyle", "fillOpacity", "lineStyle", "lineWidth", "pointSize", "showPoints", "spanNulls",
  "stacking", "thresholdsStyle", "transform", "axisPlacement", "axisLabel", "lineInterpolation", "gradientMode", "width", "minWidth", "hideFrom",
];

const settings = new FieldConfigOptionsRegistry(() => [
  ...STANDARD.map((id) => setting(id, id, false)),
  ...CUSTOM.map((id) => setting(`custom.${id}`, id, true)),
]);

function setting(id: string, path: string, isCustom: boolean): any {
  return { id, path, isCustom, name: id, editor: () => null, override: () => null, process: (value: any) => value, shouldApply: () => true };
}

function known(panel: any) {
  const { defaults, overrides } = panel.fieldConfig;
  const used = [
    ...Object.keys(defaults).filter((key) => key !== "custom"), ...Object.keys(defaults.custom ?? {}).map((key) => `custom.${key}`),
    ...overrides.flatMap((rule: any) => rule.properties.map((property: any) => property.id)),
  ];
  const unknown = used.filter((id) => !settings.getIfExists(id));
  if (unknown.length) throw new Error(`settings that this tool does not know: ${unknown}`);
}

/** What Grafana does with the frames of a panel before it draws them. */
export async function prepared(panel: any, frames: DataFrame[], range: TimeRange, theme: GrafanaTheme2): Promise<DataFrame[]> {
  known(panel);
  const transformed = await firstValueFrom(transformDataFrame(panel.transformations ?? [], frames));
  // JSON has no infinity: the first step has none below it.
  const fieldConfig = structuredClone(panel.fieldConfig);
  const of = [fieldConfig.defaults, ...fieldConfig.overrides.flatMap((rule: any) => rule.properties)];
  for (const { thresholds, id, value } of of) {
    for (const step of (thresholds ?? (id === "thresholds" ? value : undefined))?.steps ?? []) step.value ??= -Infinity;
  }
  fieldConfig.defaults.thresholds ??= { mode: ThresholdsMode.Absolute, steps: [{ value: -Infinity, color: "green" }] };
  const done = applyFieldOverrides({
    data: transformed, fieldConfig, theme, timeZone: "utc", fieldConfigRegistry: settings, replaceVariables: (text) => text, timeRange: range,
  } as any);
  cacheFieldDisplayNames(done);
  return done;
}

export const numbers = (frames: DataFrame[]) => frames.flatMap((frame) => frame.fields.filter((field) => field.type === FieldType.number));

export function Panel(drawn: Drawn): ReactNode {
  const { panel, frames } = drawn;
  const isEmpty = frames.every((frame) => frame.length === 0);
  switch (panel.type) {
    case "stat": case "bargauge": return <Values {...drawn} />;
    case "timeseries": return isEmpty ? <Nothing {...drawn} /> : <Lines {...drawn} />;
    case "state-timeline": return isEmpty ? <Nothing {...drawn} /> : <States {...drawn} />;
    case "table": return isEmpty ? <Nothing {...drawn} /> : <Table {...drawn} />;
    default: throw new Error(`a type of panel that this tool does not draw: ${panel.type}`);
  }
}

function Nothing({ panel, theme, width, height }: Drawn) {
  const style = { width, height, padding: 8, display: "flex", alignItems: "center", justifyContent: "center", textAlign: "center" as const };
  return <div className="nothing" style={{ ...style, color: theme.colors.text.secondary }}>{panel.fieldConfig.defaults.noValue}</div>;
}

/** Each is asked again whenever its graph is rendered. */
const marked = new WeakSet<UPlotConfigBuilder>();

function Lines({ panel, frames, range, marks, width, height }: Drawn) {
  const withMarks = (builder: UPlotConfigBuilder) => {
    if (!marked.has(builder)) builder.addHook("draw", (plot: any) => marks.forEach((mark) => drawMark(plot, mark)));
    marked.add(builder);
    return null;
  };
  return (
    <TimeSeries frames={frames} timeRange={range} timeZone="utc" width={width} height={height} legend={panel.options.legend} structureRev={1}>
      {withMarks}
    </TimeSeries>
  );
}

/** As Grafana marks: a line of dashes; a span is tinted. */
function drawMark(plot: any, { from, to, color }: Mark) {
  const { ctx, bbox } = plot;
  const [left, right] = [from, to].map((at) => plot.valToPos(at, "x", true));
  if (right < bbox.left || left > bbox.left + bbox.width) return;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = color;
  ctx.lineWidth = 2;
  ctx.setLineDash([5, 5]);
  for (const x of from === to ? [left] : [left, right]) {
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.globalAlpha = 0.1;
  ctx.fillRect(left, bbox.top, right - left, bbox.height);
  ctx.restore();
}

function Values({ panel, frames, theme, width, height }: Drawn) {
  const { options, fieldConfig } = panel;
  const values = getFieldDisplayValues({
    fieldConfig, reduceOptions: options.reduceOptions, replaceVariables: (text) => text, theme, data: frames, sparkline: options.graphMode === "area",
    timeZone: "utc",
  } as any);
  const draw = ({ value, width, height, count, orientation, alignmentFactors }: any) => panel.type === "stat" ? (
    <BigValue value={value.display} count={count} sparkline={value.sparkline} colorMode={options.colorMode} graphMode={options.graphMode}
      justifyMode={options.justifyMode} textMode={options.textMode} alignmentFactors={alignmentFactors} theme={theme} width={width} height={height} />
  ) : (
    <BarGauge value={value.display} display={value.view?.getFieldDisplayProcessor(value.colIndex)} field={value.field} width={width} height={height}
      orientation={orientation} displayMode={options.displayMode} showUnfilled={options.showUnfilled} valueDisplayMode={options.valueMode}
      namePlacement={options.namePlacement} alignmentFactors={alignmentFactors} itemSpacing={10} lcdCellWidth={12} theme={theme} />
  );
  return (
    <VizRepeater getValues={() => values} getAlignmentFactors={getDisplayValueAlignmentFactors} renderValue={draw} width={width} height={height} source={frames} renderCounter={1} itemSpacing={10}
      orientation={options.orientation} autoGrid={panel.type === "stat"} minVizWidth={options.minVizWidth} minVizHeight={options.minVizHeight} />
  );
}

function Table({ panel, frames, range, width, height }: Drawn) {
  return (
    <TableNG data={frames[0]} width={width} height={height} noHeader={!panel.options.showHeader} cellHeight={panel.options.cellHeight}
      sortBy={panel.options.sortBy} fieldConfig={panel.fieldConfig} timeRange={range} structureRev={1} enableVirtualization={false} />
  );
}

const LEGEND = 24, NAMES = 170;

/** Ours: a bar for each series, in the colours and words of its mappings. */
function States({ panel, frames, range, theme, width, height }: Drawn) {
  const [from, to] = [range.from.valueOf(), range.to.valueOf()];
  const at = (time: number) => NAMES + ((width - NAMES) * (time - from)) / (to - from);
  const legend = new Map<string, string>();
  const rows = frames.map((frame) => {
    const [times, field] = [frame.fields[0], numbers([frame])[0]];
    const display = getDisplayProcessor({ field, theme });
    const spans: { from: number; to: number; text: string; color: string }[] = [];
    field.values.forEach((value, i) => {
      const { text, color } = display(value);
      const [begins, ends] = [times.values[i], times.values[i] + (times.config.interval ?? 0)];
      const last = spans.at(-1);
      if (last?.text === text && begins <= last.to) last.to = ends;
      else spans.push({ from: begins, to: ends, text, color: color! });
      legend.set(text, color!);
    });
    return { name: getFieldDisplayName(field, frame, frames), spans };
  });
  const each = (height - LEGEND - 20) / rows.length;
  const ticks = [0, 1, 2, 3, 4].map((n) => from + ((n + 0.5) * (to - from)) / 5);
  return (
    <div style={{ width, height, position: "relative", fontSize: 12 }}>
      <svg width={width} height={height - LEGEND} fill={theme.colors.text.primary}>
        {rows.map(({ name, spans }, row) => (
          <g key={name}>
            <text x={NAMES - 8} y={each * (row + 0.5) + 4} textAnchor="end">{name}</text>
            {spans.map((span) => {
              const [left, right] = [Math.max(at(span.from), NAMES), Math.min(at(span.to), width)];
              return (
                <g key={span.from}>
                  <rect x={left} y={each * (row + 0.1)} width={Math.max(right - left, 1)} height={each * panel.options.rowHeight} fill={span.color} fillOpacity={0.7} />
                  {right - left > 8 * span.text.length && <text x={left + 4} y={each * (row + 0.5) + 4}>{span.text}</text>}
                </g>
              );
            })}
          </g>
        ))}
        {ticks.map((time) => <text key={time} x={at(time)} y={height - LEGEND - 4} textAnchor="middle">{dateTime(time).utc().format("HH:mm:ss")}</text>)}
      </svg>
      <VizLegend placement="bottom" displayMode={"list" as any} items={[...legend].map(([label, color]) => ({ label, color, yAxis: 1 }))} />
    </div>
  );
}

