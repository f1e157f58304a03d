/**
 * Gives VS Code what only the editor can give: the interpreter that was chosen, whether the workspace is
 * trusted, menus, a terminal, and the read-only documents of scheme `aotlens`.  What the documents say, and
 * every fact beside the code, is the language server's.
 */

import * as vscode from "vscode";
import { registerCommands } from "./commands";
import { registerDocuments } from "./documents";
import { registerMemory } from "./memory";
import { onInterpreterChange } from "./python";
import { SECTION, Server } from "./server";
import { registerStatus } from "./status";

let server: Server | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const started = new Server();
  server = started;
  context.subscriptions.push(
    started,
    ...registerCommands(started),
    ...registerDocuments(started),
    ...registerMemory(started),
    ...registerStatus(started),
    vscode.workspace.onDidGrantWorkspaceTrust(() => started.notify("aotlens/trusted", {})),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration(`${SECTION}.server.command`)) {
        void started.restart();
      } else if (event.affectsConfiguration(SECTION)) {
        started.tellSettings();
      }
    }),
  );
  await started.start();
  context.subscriptions.push(await onInterpreterChange(() => void started.restartIfMoved()));
}

export async function deactivate(): Promise<void> {
  await server?.stop();
}
