/** The memory view of the side bar: what traced targets save for their backward, and what is alive at the peak. */

import * as vscode from "vscode";
import type { Server } from "./server";
import type { MemoryRow } from "./wording";

export function registerMemory(server: Server): vscode.Disposable[] {
  const changed = new vscode.EventEmitter<void>();
  const provider: vscode.TreeDataProvider<MemoryRow> = {
    onDidChangeTreeData: changed.event,
    async getChildren(row) {
      if (row !== undefined) {
        return row.children;
      }
      return server.phase === "running" ? ((await server.run<MemoryRow[]>("aotlens.memory")) ?? []) : [];
    },
    getTreeItem: treeItem,
  };
  return [
    changed,
    vscode.window.registerTreeDataProvider("aotlens.memory", provider),
    server.onTraced(() => changed.fire()),
    server.onChange(() => changed.fire()),
  ];
}

function treeItem(row: MemoryRow): vscode.TreeItem {
  const state = row.children.length > 0 ? vscode.TreeItemCollapsibleState.Expanded : vscode.TreeItemCollapsibleState.None;
  const item = new vscode.TreeItem(row.label, state);
  item.description = row.description;
  item.tooltip = row.tooltip ?? `${row.label}: ${row.description}`;
  if (row.uri !== undefined) {
    const start = new vscode.Position(row.line ?? 0, row.character ?? 0);
    const options: vscode.TextDocumentShowOptions = { selection: new vscode.Range(start, start) };
    item.command = { command: "vscode.open", title: "Go to the line", arguments: [vscode.Uri.parse(row.uri, true), options] };
  }
  return item;
}
