/**
 * Starts `aotlens lsp` and gives VS Code what only it can: the chosen interpreter, whether the workspace is
 * trusted, and the read-only documents of scheme `aotlens`. Everything else is the server's.
 */

import * as vscode from "vscode";
import { LanguageClient, RevealOutputChannelOn } from "vscode-languageclient/node";

const SECTION = "aotlens";
const SCHEME = "aotlens";
const TRACE = "aotlens.trace";
const VERIFY = "aotlens.verify";

let client: LanguageClient | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const log = vscode.window.createOutputChannel("aotlens", { log: true });
  context.subscriptions.push(
    log,
    vscode.workspace.registerTextDocumentContentProvider(SCHEME, { provideTextDocumentContent }),
    vscode.commands.registerCommand("aotlens.traceFile", () => onThisFile(TRACE)),
    vscode.commands.registerCommand("aotlens.verifyFile", () => onThisFile(VERIFY)),
    vscode.commands.registerCommand("aotlens.restartServer", () => restart(log)),
    vscode.commands.registerCommand("aotlens.showLog", () => log.show()),
    vscode.workspace.onDidGrantWorkspaceTrust(() => client?.sendNotification("aotlens/trusted", {})),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration(`${SECTION}.server.command`)) {
        void restart(log);
      }
    }),
  );
  await start(log);
}

export async function deactivate(): Promise<void> {
  await client?.stop();
}

async function start(log: vscode.LogOutputChannel): Promise<void> {
  const [command, ...args] = await serverCommand();
  client = new LanguageClient(
    "aotlens-lsp", // not "aotlens": the library reads `<id>.trace.server`, and `aotlens.trace` is a string
    "aotlens",
    { command, args },
    {
      documentSelector: [
        { scheme: "file", language: "python" },
        { scheme: SCHEME, language: "python" },
      ],
      synchronize: { configurationSection: SECTION },
      initializationOptions: {
        ...serverSettings(),
        trusted: vscode.workspace.isTrusted,
        virtualDocuments: true,
      },
      outputChannel: log,
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      middleware: {
        executeCommand: async (name, args, next): Promise<unknown> => {
          if (name === TRACE || name === VERIFY) {
            await save(args[0]); // the trace reads the file on disk
          }
          return next(name, args);
        },
        workspace: {
          didChangeConfiguration: async () => {
            await client?.sendNotification("workspace/didChangeConfiguration", {
              settings: { [SECTION]: serverSettings() },
            });
          },
        },
      },
    },
  );
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    void vscode.window.showErrorMessage(
      `aotlens: "${[command, ...args].join(" ")}" did not start: ${String(error)}. ` +
        "Install aotlens for the selected interpreter, or set aotlens.server.command.",
    );
  }
}

async function restart(log: vscode.LogOutputChannel): Promise<void> {
  await client?.stop();
  client = undefined;
  await start(log);
}

/** The settings without those that only this extension reads; the server names any that it does not know. */
function serverSettings(): Record<string, unknown> {
  const text = JSON.stringify(vscode.workspace.getConfiguration(SECTION)); // drops the object's methods
  const { server: _server, ...settings } = JSON.parse(text) as Record<string, unknown>;
  return settings;
}

async function serverCommand(): Promise<[string, ...string[]]> {
  const [command, ...args] = vscode.workspace.getConfiguration(SECTION).get<string[]>("server.command", []);
  if (command !== undefined) {
    return [command, ...args];
  }
  const python = await selectedPython();
  return python === undefined ? ["aotlens", "lsp"] : [python, "-m", "aotlens", "lsp"];
}

/** The interpreter that the Python extension has selected; its own trust rules apply. */
async function selectedPython(): Promise<string | undefined> {
  const extension = vscode.extensions.getExtension<PythonExtension>("ms-python.python");
  if (extension === undefined) {
    return undefined;
  }
  const api = extension.isActive ? extension.exports : await extension.activate();
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
  return api.settings?.getExecutionDetails(folder).execCommand?.[0];
}

interface PythonExtension {
  settings?: { getExecutionDetails(resource?: vscode.Uri): { execCommand: string[] | undefined } };
}

async function provideTextDocumentContent(uri: vscode.Uri): Promise<string> {
  const page = await client?.sendRequest<{ text: string } | null>("aotlens/document", { uri: uri.toString() });
  return page?.text ?? "# No trace has this document any more: trace the file again.\n";
}

async function save(uri: unknown): Promise<void> {
  const document = vscode.workspace.textDocuments.find((one) => client?.code2ProtocolConverter.asUri(one.uri) === uri);
  if (document?.isDirty) {
    await document.save();
  }
}

async function onThisFile(command: string): Promise<void> {
  const document = vscode.window.activeTextEditor?.document;
  if (client === undefined || document === undefined) {
    return;
  }
  // The client library registers the server's own commands, this one among them.
  await vscode.commands.executeCommand(command, client.code2ProtocolConverter.asUri(document.uri));
}
