// One board on one page, as Grafana lays it out: `?board=URL of its JSON&...` (see `Asked`). When all is drawn, the page says what it drew.

import "@fontsource/inter/400.css";
import "@fontsource/inter/500.css";
import "@fontsource/inter/600.css";
import { createTheme, DataFrame, dateTime, ThemeContext, TimeRange } from "@grafana/data";
import { GlobalStyles, PanelChrome } from "@grafana/ui";
import { Component, ReactNode } from "react";
import { createRoot } from "react-dom/client";
import { Asked, frames, Mark, marks, shown, Variables, variables } from "./asks";
import { numbers, Panel, prepared } from "./panels";

const WIDTH = 1600, CELL = 30, GAP = 8, HEAD = 56;

type Answer = { panel: any; frames: DataFrame[]; error?: string };

const theme = createTheme({ colors: { mode: "dark" } });
const errors: Record<string, string> = {};

class Guard extends Component<{ title: string; children: ReactNode }, { error?: Error }> {
  state: { error?: Error } = {};
  static getDerivedStateFromError = (error: Error) => ({ error });
  componentDidCatch(error: Error) {
    errors[this.props.title] = String(error.stack ?? error);
  }
  render() {
    return this.state.error ? <div>{String(this.state.error)}</div> : this.props.children;
  }
}

function place({ x, y, w, h }: any) {
  const column = (WIDTH - GAP) / 24;
  return { left: GAP + x * column, top: HEAD + y * (CELL + GAP), width: w * column - GAP, height: h * (CELL + GAP) - GAP };
}

function Head({ board, of, range }: { board: any; of: Variables; range: TimeRange }) {
  const chosen = board.templating.list.filter((v: any) => of[v.name] && v.type === "query" && v.hide !== 2);
  return (
    <div style={{ height: HEAD, padding: "12px 12px 0", display: "flex", gap: 24, alignItems: "center", whiteSpace: "nowrap", overflow: "hidden" }}>
      <span style={{ fontSize: 18, fontWeight: 500 }}>{board.title}</span>
      {chosen.map((v: any) => <span key={v.name}><span style={{ color: theme.colors.text.secondary }}>{v.label} </span>{of[v.name].shown}</span>)}
      <span style={{ marginLeft: "auto", color: theme.colors.text.secondary }}>
        {range.from.format("YYYY-MM-DD HH:mm:ss")} to {range.to.format("HH:mm:ss")} UTC
      </span>
    </div>
  );
}

function Board({ board, answers, of, range, found }: { board: any; answers: Answer[]; of: Variables; range: TimeRange; found: Mark[] }) {
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <Head board={board} of={of} range={range} />
      {answers.map(({ panel, frames, error }) => {
        const { left, top, width, height } = place(panel.gridPos);
        const title = shown(panel.title, of);
        return (
          <div key={panel.id} style={{ position: "absolute", left, top, width, height }}>
            {panel.type === "row" ? <div style={{ fontSize: 16, fontWeight: 500, lineHeight: "30px" }}>⌄ {title}</div> : (
              <PanelChrome title={title} description={panel.description} width={width} height={height}
                padding={panel.type === "table" ? "none" : "md"} statusMessage={error}>
                {(width: number, height: number) => (
                  <Guard title={panel.title}>
                    <Panel panel={panel} frames={frames} range={range} marks={found} theme={theme} width={width} height={height} />
                  </Guard>
                )}
              </PanelChrome>
            )}
          </div>
        );
      })}
    </ThemeContext.Provider>
  );
}

async function answer(panel: any, asked: Asked, of: Variables, range: TimeRange): Promise<Answer> {
  if (panel.type === "row") return { panel, frames: [] };
  try {
    const got = await frames(panel, asked, of, Math.floor(place(panel.gridPos).width));
    return { panel, frames: await prepared(panel, got, range, theme) };
  } catch (error) {
    errors[panel.title] = String(error);
    return { panel, frames: [], error: String(error) };
  }
}

async function draw() {
  const words = Object.fromEntries(new URLSearchParams(location.search));
  const asked: Asked = {
    prometheus: words.prometheus, from: +words.from, to: +words.to, every: +words.every, chosen: JSON.parse(words.chosen ?? "{}"),
  };
  const board = await (await fetch(words.board)).json();
  const of = await variables(board, asked);
  const [from, to] = [dateTime(asked.from).utc(), dateTime(asked.to).utc()];
  const range = { from, to, raw: { from, to } };
  // The panels of a row that is closed lie in it; here every row is open.
  const panels = board.panels.flatMap((panel: any) => [panel, ...(panel.panels ?? [])]);
  const answers = await Promise.all(panels.map((panel: any) => answer(panel, asked, of, range)));
  const found = await marks(board, asked, of);
  const root = document.getElementById("root")!;
  const bottom = Math.max(...panels.map((panel: any) => panel.gridPos.y + panel.gridPos.h));
  Object.assign(root.style, { position: "relative", width: `${WIDTH}px`, height: `${HEAD + bottom * (CELL + GAP)}px` });
  createRoot(root).render(<Board {...{ board, answers, of, range, found }} />);
  await new Promise((drawn) => setTimeout(drawn, 2000));
  const drawn = answers.filter(({ panel }) => panel.type !== "row").map(({ panel, frames }) => ({
    title: panel.title, type: panel.type, error: errors[panel.title],
    series: panel.type === "table" ? Math.max(0, ...frames.map((frame) => frame.length)) : numbers(frames).length,
  }));
  await fetch("/report", { method: "POST", body: JSON.stringify({ height: root.offsetHeight, marks: found.length, panels: drawn }) });
}

draw().catch((error) => fetch("/report", { method: "POST", body: JSON.stringify({ error: String(error.stack ?? error), panels: [] }) }));
