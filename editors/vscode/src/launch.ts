/** What starts the server and what it gets at the start; nothing here needs an editor. */

export type CommandLine = readonly [string, ...string[]];

/**
 * The setting where it is filled in, or else the chosen interpreter, or else `aotlens` from the path.
 *
 * -P keeps the folder that the editor has open out of Python's search path: a file there must not be imported
 * in place of a module of ours, and never by opening the folder.
 */
export function commandLine(setting: readonly string[], python: string | undefined): CommandLine {
  const [command, ...args] = setting;
  if (command !== undefined) {
    return [command, ...args];
  }
  return python === undefined ? ["aotlens", "lsp"] : [python, "-P", "-m", "aotlens", "lsp"];
}

export function sameCommand(one: CommandLine | undefined, other: CommandLine): boolean {
  return one !== undefined && JSON.stringify(one) === JSON.stringify(other);
}

/** The settings without those that only this extension reads, as the server names any that it does not know. */
export function forServer(section: unknown): Record<string, unknown> {
  const plain = JSON.parse(JSON.stringify(section)) as Record<string, unknown>; // drops the object's methods
  const { server: _server, ...settings } = plain;
  return settings;
}

/** The values that a setting has, as the editor's `inspect` lists them beside the default. */
export type Inspected = Record<string, unknown>;

/** The settings that the user chose: a default must not go before the project's `[tool.aotlens]`. */
export function chosenOnly(
  settings: Record<string, unknown>,
  inspect: (name: string) => Inspected,
  prefix = "",
): Record<string, unknown> {
  const chosen: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(settings)) {
    const name = `${prefix}${key}`;
    if (value !== null && typeof value === "object" && !Array.isArray(value)) {
      chosen[key] = chosenOnly(value as Record<string, unknown>, inspect, `${name}.`);
    } else if (Object.entries(inspect(name)).some(([kind, one]) => kind.endsWith("Value") && kind !== "defaultValue" && one !== undefined)) {
      chosen[key] = value;
    }
  }
  return chosen;
}

/** `settings`, and what the server must know of this client. */
export function initializationOptions(
  settings: Record<string, unknown>,
  trusted: boolean,
): Record<string, unknown> {
  return { ...settings, trusted, virtualDocuments: true, terminal: true, status: true };
}
