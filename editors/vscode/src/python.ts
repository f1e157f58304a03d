/** The interpreter that the Python extension has selected; its own rules on trust apply. */

import * as vscode from "vscode";

const EXTENSION = "ms-python.python";

/** The part of the Python extension's interface that is used here. */
interface PythonApi {
  environments?: {
    getActiveEnvironmentPath(resource?: vscode.Uri): { path: string };
    resolveEnvironment(environment: { path: string }): Promise<ResolvedEnvironment | undefined>;
    onDidChangeActiveEnvironmentPath: vscode.Event<unknown>;
  };
}

interface ResolvedEnvironment {
  executable: { uri?: vscode.Uri };
}

export async function selectedPython(): Promise<string | undefined> {
  const environments = (await api())?.environments;
  if (environments === undefined) {
    return undefined;
  }
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
  const chosen = await environments.resolveEnvironment(environments.getActiveEnvironmentPath(folder));
  return chosen?.executable.uri?.fsPath;
}

export async function onInterpreterChange(listener: () => void): Promise<vscode.Disposable> {
  const environments = (await api())?.environments;
  return environments?.onDidChangeActiveEnvironmentPath(listener) ?? new vscode.Disposable(() => undefined);
}

async function api(): Promise<PythonApi | undefined> {
  const extension = vscode.extensions.getExtension<PythonApi>(EXTENSION);
  return extension === undefined || extension.isActive ? extension?.exports : extension.activate();
}
