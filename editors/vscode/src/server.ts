/**
 * The language server's process and the one client of it.
 *
 * At most one runs at a time; what listens here goes on over restarts.
 */

import * as vscode from "vscode";
import { type ExecuteCommandSignature, LanguageClient, RevealOutputChannelOn, type ShowDocumentParams, State } from "vscode-languageclient/node";
import { chosenOnly, type CommandLine, commandLine, forServer, initializationOptions, sameCommand } from "./launch";
import { selectedPython } from "./python";
import { IDLE, type Phase, type Tracing } from "./wording";

export const SECTION = "aotlens";
export const SCHEME = "aotlens";
export const TRACE = "aotlens.trace";
export const CHOOSE_GPU = "aotlens.chooseGpu";
const RUNS_CODE = [
  TRACE,
  "aotlens.verify",
  "aotlens.tryFixes",
  "aotlens.fit",
  "aotlens.lowerPeak",
  CHOOSE_GPU,
];

export class Server implements vscode.Disposable {
  readonly log = vscode.window.createOutputChannel("aotlens", { log: true });
  phase: Phase = "stopped";
  tracing: Tracing = IDLE;
  private readonly changed = new vscode.EventEmitter<void>();
  private readonly traced = new vscode.EventEmitter<void>();
  /** The server started or stopped, or a trace did. */
  readonly onChange = this.changed.event;
  /** The documents of traced targets may have new texts. */
  readonly onTraced = this.traced.event;
  private client: LanguageClient | undefined;
  private command: CommandLine | undefined;

  async start(): Promise<void> {
    this.command = await wantedCommand();
    const client = this.newClient(this.command);
    this.client = client;
    client.onDidChangeState(({ newState }) => this.becomes(PHASES[newState]));
    client.onNotification("aotlens/status", (status: Tracing) => this.hears(status));
    try {
      await client.start();
    } catch (error) {
      this.client = undefined;
      this.becomes("failed");
      void this.sayNotStarted(this.command, error);
    }
  }

  async stop(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    // A client that never came up cannot be stopped; its process has ended by itself.
    if (client?.isRunning()) {
      await client.stop();
    }
    this.hears(IDLE);
  }

  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  /** Restart where the chosen interpreter is another one. */
  async restartIfMoved(): Promise<void> {
    if (!sameCommand(this.command, await wantedCommand())) {
      await this.restart();
    }
  }

  /** One of the server's commands; undefined, with a message, while no server runs. */
  async run<Answer>(command: string, ...args: unknown[]): Promise<Answer | undefined> {
    if (!this.client?.isRunning()) {
      void vscode.window.showWarningMessage("aotlens: the language server is not running; see its log.");
      return undefined;
    }
    // Through the editor, so that `executeCommand` below sees it: the library registers the server's commands.
    return vscode.commands.executeCommand<Answer>(command, ...args);
  }

  async request<Answer>(method: string, params: unknown): Promise<Answer | undefined> {
    return this.client?.isRunning() ? this.client.sendRequest<Answer>(method, params) : undefined;
  }

  notify(method: string, params: unknown): void {
    if (this.client?.isRunning()) {
      void this.client.sendNotification(method, params);
    }
  }

  tellSettings(): void {
    this.notify("workspace/didChangeConfiguration", { settings: { [SECTION]: settings() } });
  }

  /** A document's address as the server writes it. */
  addressOf(uri: vscode.Uri): string {
    return this.client?.code2ProtocolConverter.asUri(uri) ?? uri.toString();
  }

  /** Ask again for everything that follows the traces. */
  refresh(): void {
    this.traced.fire();
  }

  dispose(): void {
    this.changed.dispose();
    this.traced.dispose();
    this.log.dispose();
  }

  private newClient([command, ...args]: CommandLine): LanguageClient {
    return new LanguageClient(
      "aotlens-lsp", // not "aotlens": the library reads `<id>.trace.server`, and `aotlens.trace` is a string
      "aotlens",
      { command, args },
      {
        documentSelector: [
          { scheme: "file", language: "python" },
          { scheme: SCHEME },
        ],
        initializationOptions: initializationOptions(settings(), vscode.workspace.isTrusted),
        initializationFailedHandler: () => false, // `start` says it
        outputChannel: this.log,
        revealOutputChannelOn: RevealOutputChannelOn.Never,
        middleware: {
          executeCommand: (name, args, next) => this.executeCommand(name, args, next),
          window: { showDocument: async (params, _next) => ({ success: await show(params) }) },
        },
      },
    );
  }

  private async executeCommand(name: string, args: unknown[], next: ExecuteCommandSignature): Promise<unknown> {
    if (RUNS_CODE.includes(name)) {
      if (!vscode.workspace.isTrusted) {
        void sayUntrusted();
        return undefined;
      }
      await this.save(args[0]); // the trace reads the file on disk
    }
    return next(name, args);
  }

  private async save(address: unknown): Promise<void> {
    const document = vscode.workspace.textDocuments.find((one) => this.addressOf(one.uri) === address);
    if (document?.isDirty) {
      await document.save();
    }
  }

  private becomes(phase: Phase): void {
    this.phase = phase;
    this.changed.fire();
  }

  private hears(status: Tracing): void {
    const ended = status.running.length < this.tracing.running.length || status.traced === 0;
    this.tracing = status;
    this.changed.fire();
    if (ended) {
      this.traced.fire();
    }
  }

  private async sayNotStarted(command: CommandLine, error: unknown): Promise<void> {
    this.log.error(String(error));
    const chosen = await vscode.window.showErrorMessage(
      `aotlens: "${command.join(" ")}" did not start. Install aotlens for the selected interpreter ` +
        "(pip install aotlens), or set aotlens.server.command.",
      "Show Log",
      "Open Settings",
    );
    if (chosen === "Show Log") {
      this.log.show();
    } else if (chosen === "Open Settings") {
      await vscode.commands.executeCommand("workbench.action.openSettings", "aotlens.server.command");
    }
  }
}

const PHASES: Record<State, Phase> = {
  [State.Starting]: "starting",
  [State.StartFailed]: "failed",
  [State.Running]: "running",
  [State.Stopped]: "stopped",
};

async function wantedCommand(): Promise<CommandLine> {
  const setting = vscode.workspace.getConfiguration(SECTION).get<string[]>("server.command", []);
  return commandLine(setting, setting.length > 0 ? undefined : await selectedPython());
}

function settings(): Record<string, unknown> {
  const configuration = vscode.workspace.getConfiguration(SECTION);
  return chosenOnly(forServer(configuration), (name) => configuration.inspect(name) ?? {});
}

/** Shows a document beside the code that it concerns; all of them share one column. */
async function show(params: ShowDocumentParams): Promise<boolean> {
  const uri = vscode.Uri.parse(params.uri, true);
  const start = new vscode.Position(params.selection?.start.line ?? 0, 0);
  const besides = vscode.window.activeTextEditor?.document.uri.scheme === "file" && uri.scheme === SCHEME;
  await vscode.window.showTextDocument(uri, {
    preserveFocus: params.takeFocus !== true,
    selection: new vscode.Range(start, start),
    viewColumn: besides ? vscode.ViewColumn.Beside : vscode.ViewColumn.Active,
  });
  return true;
}

async function sayUntrusted(): Promise<void> {
  const manage = "Manage Workspace Trust";
  const chosen = await vscode.window.showWarningMessage(
    "aotlens: tracing runs the file's code, so it is off until you trust this workspace.",
    manage,
  );
  if (chosen === manage) {
    await vscode.commands.executeCommand("workbench.trust.manage");
  }
}
