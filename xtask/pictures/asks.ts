// What Grafana's Prometheus data source does: variables into expressions, answers into data frames.

import { DataFrame, FieldType, rangeUtil } from "@grafana/data";

export type Asked = { prometheus: string; from: number; to: number; every: number; chosen: Record<string, string> };
type Series = { metric: Record<string, string>; value?: [number, string]; values?: [number, string][] };
type Variable = { values: string[]; shown: string; all?: string };
export type Variables = Record<string, Variable>;

async function api(asked: Asked, path: string, words: Record<string, string>): Promise<any> {
  const answer = await fetch(`${asked.prometheus}/api/v1/${path}?${new URLSearchParams(words)}`);
  const body = await answer.json();
  if (body.status !== "success") throw new Error(`${words.query ?? path}: ${body.error}`);
  return body.data;
}

const seconds = (ms: number) => (ms / 1000).toFixed(3);

export async function variables(board: any, asked: Asked): Promise<Variables> {
  const found: Variables = {};
  for (const variable of board.templating.list) {
    if (variable.type === "datasource") continue;
    if (variable.type !== "query") {
      found[variable.name] = { values: [variable.query], shown: variable.query };
      continue;
    }
    const options = await optionsOf(filled(variable.query.query, found), variable.regex, asked);
    const wanted = asked.chosen[variable.name];
    const one = options.find((o) => o.text.startsWith(wanted ?? "\0"));
    if (wanted && !one) throw new Error(`$${variable.name}: nothing begins with ${wanted}: ${options.map((o) => o.text)}`);
    if (variable.includeAll && !one) {
      found[variable.name] = { values: options.map((o) => o.value), shown: "All", all: variable.allValue };
    } else {
      const it = one ?? options[0] ?? { value: "", text: "None" };
      found[variable.name] = { values: [it.value], shown: it.text };
    }
  }
  return found;
}

async function optionsOf(query: string, regex: string, asked: Asked): Promise<{ value: string; text: string }[]> {
  const inner = query.slice(query.indexOf("(") + 1, -1);
  const range = { start: seconds(asked.from), end: seconds(asked.to) };
  let lines: string[];
  if (query.startsWith("label_values(")) {
    const at = inner.lastIndexOf(",");
    lines = await api(asked, `label/${inner.slice(at + 1).trim()}/values`, { "match[]": inner.slice(0, at), ...range });
  } else {
    const { result } = await api(asked, "query", { query: inner, time: seconds(asked.to) });
    const labels = (metric: Series["metric"]) => Object.entries(metric).filter(([name]) => name !== "__name__");
    lines = result.map(({ metric, value }: any) =>
      `${metric.__name__ ?? ""}{${labels(metric).map(([name, of]) => `${name}="${of}"`).join(",")}} ${value[1]} ${value[0]}`);
  }
  const pattern = regex ? new RegExp(regex.replace(/^\/|\/$/g, "")) : /^(?<value>.*)$/;
  const options = lines.map((line) => pattern.exec(line)?.groups).filter((groups) => !!groups);
  return options.map((o: any) => ({ value: o.value, text: o.text ?? o.value })).sort((a, b) => a.text.localeCompare(b.text));
}

const escaped = (value: string) => value.replace(/\\/g, "\\\\").replace(/[$^*{}[\]'+?.()|]/g, "\\\\$&");

/** As in an expression: of several values one pattern. */
export function filled(text: string, of: Variables, more: Record<string, string> = {}): string {
  return text.replace(/\$(?:(\w+)|\{(\w+)(?::\w+)?\})/g, (whole, plain, braced) => {
    const name = plain ?? braced;
    if (name in more) return more[name];
    const variable = of[name];
    if (!variable) return whole;
    if (variable.all) return variable.all;
    const [one, ...others] = variable.values;
    return others.length ? `(${variable.values.map(escaped).join("|")})` : variable.shown === "All" ? escaped(one ?? "") : one;
  });
}

/** As in a title. */
export function shown(text: string, of: Variables): string {
  return text.replace(/\$(\w+)/g, (whole, name) => of[name]?.shown ?? whole);
}

const legend = (format: string, labels: Record<string, string>) =>
  format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, name) => labels[name] ?? "");

/** Grafana takes a step that gives a point a pixel, and none below how often is scraped; rates reach over four scrapes. */
function steps(asked: Asked, width: number, least = 0) {
  const step = Math.max(rangeUtil.roundInterval((asked.to - asked.from) / width), asked.every * 1000, least);
  const rate = Math.max(step + asked.every * 1000, 4 * asked.every * 1000);
  const range = asked.to - asked.from;
  const words = {
    __interval: `${step}ms`, __rate_interval: `${rate}ms`, __rate_interval_ms: `${rate}`, __range: `${range}ms`, __range_s: seconds(range),
  };
  return { step, words };
}

async function overRange(asked: Asked, query: string, step: number): Promise<Series[]> {
  const [start, end] = [Math.floor(asked.from / step) * step, Math.floor(asked.to / step) * step];
  const words = { query, start: seconds(start), end: seconds(end), step: seconds(step) };
  return (await api(asked, "query_range", words)).result;
}

/** The frames of all that a panel asks. */
export async function frames(panel: any, asked: Asked, of: Variables, width: number): Promise<DataFrame[]> {
  const { step, words } = steps(asked, width);
  const found: DataFrame[] = [];
  for (const target of panel.targets) {
    const query = filled(target.expr, of, words);
    if (target.format === "table") {
      const { result } = await api(asked, "query", { query, time: seconds(asked.to) });
      found.push(...table(result, target.refId, panel.targets.length > 1));
    } else if (target.instant) {
      const { result } = await api(asked, "query", { query, time: seconds(asked.to) });
      found.push(...result.map((series: Series) => line(series, [series.value!], target, asked.every * 1000)));
    } else {
      const result = await overRange(asked, query, step);
      found.push(...result.map((series) => line(series, series.values!, target, step)));
    }
  }
  return found;
}

function line({ metric }: Series, points: [number, string][], target: any, step: number): DataFrame {
  const name = legend(target.legendFormat, metric);
  const time = { name: "Time", type: FieldType.time, config: { interval: step }, values: points.map(([at]) => at * 1000) };
  const config = { displayNameFromDS: name };
  const value = { name: "Value", type: FieldType.number, labels: metric, config, values: points.map(([, v]) => Number(v)) };
  return { refId: target.refId, name, fields: [time, value], length: points.length };
}

function table(result: Series[], refId: string, ofSeveral: boolean): DataFrame[] {
  if (result.length === 0) return [];
  const labels = [...new Set(result.flatMap(({ metric }) => Object.keys(metric)))].sort();
  const time = { name: "Time", type: FieldType.time, config: {}, values: result.map(({ value }) => value![0] * 1000) };
  const texts = labels.map((name) =>
    ({ name, type: FieldType.string, config: {}, values: result.map(({ metric }) => metric[name] ?? "") }));
  const numbers = result.map(({ value }) => Number(value![1]));
  const value = { name: ofSeveral ? `Value #${refId}` : "Value", type: FieldType.number, config: {}, values: numbers };
  return [{ refId, fields: [time, ...texts, value], length: result.length }];
}

export type Mark = { from: number; to: number; color: string };

/** The marks of a board: what follows without a gap is one, from its first point to its last. */
export async function marks(board: any, asked: Asked, of: Variables): Promise<Mark[]> {
  const found: Mark[] = [];
  for (const mark of board.annotations.list.filter((mark: any) => mark.expr && mark.enable)) {
    const { step, words } = steps(asked, 1000, rangeUtil.intervalToMs(filled(mark.step || "60s", of)));
    for (const { values } of await overRange(asked, filled(mark.expr, of, words), step)) {
      let last: Mark | undefined;
      for (const [at] of values!) {
        if (last && at * 1000 - last.to <= step) last.to = at * 1000;
        else found.push((last = { from: at * 1000, to: at * 1000, color: mark.iconColor }));
      }
    }
  }
  return found;
}
