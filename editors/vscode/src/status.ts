/** The item in the status bar: what the server is doing, and by a click everything that can be asked of it. */

import * as vscode from "vscode";
import { MENU } from "./commands";
import { SCHEME, type Server } from "./server";
import { statusText } from "./wording";

export function registerStatus(server: Server): vscode.Disposable[] {
  const item = vscode.window.createStatusBarItem("aotlens.status", vscode.StatusBarAlignment.Right, 99);
  item.name = "aotlens";
  item.command = MENU;
  const update = (): void => {
    const { text, tooltip, isError } = statusText(server.phase, server.tracing, vscode.workspace.isTrusted);
    item.text = text;
    item.tooltip = tooltip;
    item.backgroundColor = isError ? new vscode.ThemeColor("statusBarItem.errorBackground") : undefined;
    const document = vscode.window.activeTextEditor?.document;
    if (document !== undefined && (document.languageId === "python" || document.uri.scheme === SCHEME)) {
      item.show();
    } else {
      item.hide();
    }
  };
  update();
  return [
    item,
    server.onChange(update),
    vscode.window.onDidChangeActiveTextEditor(update),
    vscode.workspace.onDidGrantWorkspaceTrust(update),
  ];
}
