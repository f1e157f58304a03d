/** The commands of the palette and of the status item's menu; those that lenses carry are the server's own. */

import * as vscode from "vscode";
import { CHOOSE_GPU, type Server, TRACE } from "./server";
import { gpuItems, type Gpus, partItems, type TracedTarget } from "./wording";

export const MENU = "aotlens.menu";

type Handler = (server: Server, ...args: unknown[]) => unknown;

const COMMANDS: Record<string, Handler> = {
  "aotlens.traceFile": (server) => onThisFile(server, TRACE),
  "aotlens.traceTarget": traceTarget,
  "aotlens.verifyFile": (server) => onThisFile(server, "aotlens.verify"),
  "aotlens.fitFile": (server) => onThisFile(server, "aotlens.fit"),
  "aotlens.stopTraces": (server) => server.run("aotlens.cancel"),
  "aotlens.showGraph": showGraph,
  "aotlens.pickGpu": pickGpu,
  "aotlens.exportTarget": exportTarget,
  "aotlens.openTui": openTui,
  "aotlens.refreshMemory": (server) => server.refresh(),
  "aotlens.clearTraces": (server) => server.run("aotlens.clear"),
  "aotlens.restartServer": (server) => server.restart(),
  "aotlens.showLog": (server) => server.log.show(),
  "aotlens.copyDebugInformation": copyDebugInformation,
  [MENU]: menu,
};

export function registerCommands(server: Server): vscode.Disposable[] {
  return Object.entries(COMMANDS).map(([name, handler]) =>
    vscode.commands.registerCommand(name, (...args: unknown[]) => handler(server, ...args)),
  );
}

async function onThisFile(server: Server, command: string): Promise<void> {
  const uri = thisFile();
  if (uri !== undefined) {
    await server.run(command, server.addressOf(uri));
  }
}

/** The last lens "Trace" at or above the cursor. */
async function traceTarget(server: Server): Promise<void> {
  const uri = thisFile();
  const line = vscode.window.activeTextEditor?.selection.active.line;
  if (uri === undefined || line === undefined) {
    return;
  }
  const lenses = await vscode.commands.executeCommand<vscode.CodeLens[]>("vscode.executeCodeLensProvider", uri, 1000);
  const above = lenses.filter((lens) => lens.command?.command === TRACE && lens.range.start.line <= line);
  const nearest = above.sort((one, other) => one.range.start.line - other.range.start.line).pop()?.command;
  if (nearest === undefined) {
    void vscode.window.showInformationMessage(
      "aotlens: no target at or above the cursor. A target has an example comment " +
        "(# aotlens: example f32[8, 16]) or is given to torch.compile; the light bulb on a def adds one.",
    );
    return;
  }
  await server.run(nearest.command, ...((nearest.arguments ?? []) as unknown[]));
}

async function showGraph(server: Server): Promise<void> {
  const target = await pickTarget(server, "Show which target?");
  if (target === undefined) {
    return;
  }
  const placeHolder = `${target.qualname}: ${target.summary}`;
  const part = await vscode.window.showQuickPick(partItems(target.parts), { placeHolder });
  if (part !== undefined) {
    await server.run("aotlens.show", target.uri, target.qualname, part.label);
  }
}

/** Later traces of this session have the kernels of the chosen GPU too. */
async function pickGpu(server: Server): Promise<void> {
  const uri = thisFile();
  const offered = uri === undefined ? undefined : await server.run<Gpus>("aotlens.gpus");
  if (uri === undefined || offered === undefined) {
    return;
  }
  const chosen = await vscode.window.showQuickPick(gpuItems(offered), {
    placeHolder: "Kernels for which GPU? It need not be present.",
  });
  if (chosen === undefined) {
    return;
  }
  await server.run(CHOOSE_GPU, server.addressOf(uri), null, chosen.label);
}

async function exportTarget(server: Server): Promise<void> {
  const target = await pickTarget(server, "Export which target?");
  if (target === undefined) {
    return;
  }
  const defaultUri = vscode.Uri.parse(target.exportsTo, true);
  const chosen = await vscode.window.showSaveDialog({ defaultUri, filters: { Python: ["py"] } });
  if (chosen !== undefined) {
    await server.run("aotlens.export", target.uri, target.qualname, server.addressOf(chosen));
  }
}

/** The one traced target of the file, or the one that the user picks of all. */
async function pickTarget(server: Server, placeHolder: string): Promise<TracedTarget | undefined> {
  const every = await server.run<TracedTarget[]>("aotlens.targets");
  if (every === undefined) {
    return undefined;
  }
  if (every.length === 0) {
    await offerTrace();
    return undefined;
  }
  const uri = vscode.window.activeTextEditor?.document.uri;
  const here = every.filter((target) => uri !== undefined && target.uri === server.addressOf(uri));
  const [first, ...others] = here.length > 0 ? here : every;
  if (others.length === 0) {
    return first;
  }
  const items = (here.length > 0 ? here : every).map((target) => ({
    label: target.qualname,
    description: target.summary,
    target,
  }));
  return (await vscode.window.showQuickPick(items, { placeHolder }))?.target;
}

async function offerTrace(): Promise<void> {
  const title = "Trace This File";
  const chosen = await vscode.window.showInformationMessage("aotlens: nothing is traced yet.", title);
  if (chosen === title) {
    await vscode.commands.executeCommand("aotlens.traceFile");
  }
}

/** From a lens with a target, from the palette with the file. */
async function openTui(server: Server, address?: unknown, qualname?: unknown): Promise<void> {
  const uri = typeof address === "string" ? address : optionalAddress(server);
  if (uri === undefined || !vscode.workspace.isTrusted) {
    return;
  }
  const answer = await server.run<{ command: string[] | null; cwd: string | null }>("aotlens.tui", uri, qualname);
  const [shellPath, ...shellArgs] = answer?.command ?? [];
  if (shellPath === undefined) {
    return;
  }
  const terminal = vscode.window.createTerminal({
    name: typeof qualname === "string" ? `aotlens ${qualname}` : "aotlens",
    shellPath,
    shellArgs,
    ...(answer?.cwd ? { cwd: answer.cwd } : {}),
    location: vscode.TerminalLocation.Editor,
    iconPath: new vscode.ThemeIcon("circuit-board"),
  });
  await terminal.processId; // before it runs it is shown, and gets no keys
  terminal.show();
}

async function copyDebugInformation(server: Server): Promise<void> {
  const facts = await server.run<unknown>("aotlens.printDebugInformation");
  if (facts !== undefined) {
    await vscode.env.clipboard.writeText(JSON.stringify(facts, undefined, 2));
    void vscode.window.showInformationMessage("aotlens: the server's state is on the clipboard.");
  }
}

const MENU_ITEMS = [
  { label: "$(play) Trace this file", command: "aotlens.traceFile", trusted: true },
  { label: "$(beaker) Compare this file with eager", command: "aotlens.verifyFile", trusted: true },
  { label: "$(dashboard) Will it fit? Measure the training step", command: "aotlens.fitFile", trusted: true },
  { label: "$(type-hierarchy-sub) Show a graph, the wrapper or a kernel…", command: "aotlens.showGraph" },
  { label: "$(terminal) Open the terminal app", command: "aotlens.openTui", trusted: true },
  { label: "$(chip) Show the kernels for a GPU…", command: "aotlens.pickGpu", trusted: true },
  { label: "$(export) Export a traced target…", command: "aotlens.exportTarget" },
  { label: "$(debug-stop) Stop traces", command: "aotlens.stopTraces" },
  { label: "$(clear-all) Clear traces and what is kept on disk", command: "aotlens.clearTraces" },
  { label: "$(debug-restart) Restart the language server", command: "aotlens.restartServer" },
  { label: "$(output) Show the log", command: "aotlens.showLog" },
];

async function menu(): Promise<void> {
  const trust = { label: "$(workspace-trusted) Trust this workspace…", command: "workbench.trust.manage" };
  const items = vscode.workspace.isTrusted ? MENU_ITEMS : [trust, ...MENU_ITEMS.filter((item) => !item.trusted)];
  const chosen = await vscode.window.showQuickPick(items, { placeHolder: "aotlens" });
  if (chosen !== undefined) {
    await vscode.commands.executeCommand(chosen.command);
  }
}

/** The active file; a graph or an unsaved buffer is none. */
function thisFile(): vscode.Uri | undefined {
  const document = vscode.window.activeTextEditor?.document;
  if (document?.uri.scheme !== "file" || document.languageId !== "python") {
    void vscode.window.showInformationMessage("aotlens: open a Python file first.");
    return undefined;
  }
  return document.uri;
}

function optionalAddress(server: Server): string | undefined {
  const uri = thisFile();
  return uri === undefined ? undefined : server.addressOf(uri);
}
