/** The graphs, wrappers and kernels of traced targets, as read-only documents that follow the newest trace. */

import * as vscode from "vscode";
import { SCHEME, type Server } from "./server";

const GONE = "# No trace has this document: trace the file again.\n";

export function registerDocuments(server: Server): vscode.Disposable[] {
  const changed = new vscode.EventEmitter<vscode.Uri>();
  const provider: vscode.TextDocumentContentProvider = {
    onDidChange: changed.event,
    async provideTextDocumentContent(uri) {
      const page = await server.request<{ text: string } | null>("aotlens/document", {
        uri: server.addressOf(uri),
      });
      return page?.text ?? GONE;
    },
  };
  return [
    changed,
    vscode.workspace.registerTextDocumentContentProvider(SCHEME, provider),
    server.onTraced(() => {
      for (const document of vscode.workspace.textDocuments) {
        if (document.uri.scheme === SCHEME) {
          changed.fire(document.uri);
        }
      }
    }),
  ];
}
