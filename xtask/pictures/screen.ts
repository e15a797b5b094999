// What a program wrote to its terminal, as a terminal shows it: `?said=URL of the bytes&columns=&rows=`.

import "@fontsource/dejavu-mono/400.css";
import "@fontsource/dejavu-mono/700.css";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";

async function draw() {
  const words = new URLSearchParams(location.search);
  const said = new Uint8Array(await (await fetch(words.get("said")!)).arrayBuffer());
  await Promise.all([document.fonts.load("14px 'DejaVu Mono'"), document.fonts.load("bold 14px 'DejaVu Mono'")]);
  const terminal = new Terminal({
    cols: Number(words.get("columns")), rows: Number(words.get("rows")), fontFamily: "'DejaVu Mono', monospace", fontSize: 14, lineHeight: 1.15,
    theme: {
      background: "#1e2129", foreground: "#d8dce6", red: "#e06c75", green: "#98c379", yellow: "#e5c07b", blue: "#61afef", cyan: "#56b6c2",
    }, cursorInactiveStyle: "none", allowProposedApi: true,
  });
  terminal.open(document.getElementById("root")!);
  await new Promise<void>((written) => terminal.write(said, written));
  await new Promise((drawn) => setTimeout(drawn, 500));
  const { offsetWidth, offsetHeight } = document.querySelector<HTMLElement>(".xterm-screen")!;
  await fetch("/report", { method: "POST", body: JSON.stringify({ width: offsetWidth + 24, height: offsetHeight + 24, panels: [] }) });
}

draw().catch((error) => fetch("/report", { method: "POST", body: JSON.stringify({ error: String(error.stack ?? error), panels: [] }) }));
