/** What the status item and the menus say; nothing here needs an editor. */

export type Phase = "starting" | "running" | "stopped" | "failed";

/** The server's notification `aotlens/status`. */
export interface Tracing {
  running: { script: string; qualname: string | null }[];
  traced: number;
}

export const IDLE: Tracing = { running: [], traced: 0 };

/** A row of the server's answer to `aotlens.targets`. */
export interface TracedTarget {
  uri: string;
  qualname: string;
  summary: string;
  parts: string[];
  /** The address that an export goes to unless told otherwise. */
  exportsTo: string;
}

/** The server's answer to `aotlens.gpus`. */
export interface Gpus {
  gpus: { name: string; architecture: string; memoryGiB: number }[];
  current: string | null;
}

/** The choice of no GPU, as the server reads it. */
export const NO_KERNELS = "no kernels";

/** The GPUs for a menu, the current one marked, after the choice of none. */
export function gpuItems({ gpus, current }: Gpus): { label: string; description: string }[] {
  const none = { label: NO_KERNELS, description: current === null ? "now" : "" };
  const rows = gpus.map(({ name, architecture, memoryGiB }) => ({
    label: name,
    description: `${architecture}, ${memoryGiB} GiB${name === current ? " · now" : ""}`,
  }));
  return [none, ...rows];
}

/** A row of the memory view, with the place of its expression. */
export interface MemoryRow {
  label: string;
  description: string;
  tooltip?: string;
  uri?: string;
  line?: number;
  character?: number;
  children: MemoryRow[];
}

export interface StatusText {
  text: string;
  tooltip: string;
  isError: boolean;
}

/** The status item: `$(…)` are the editor's icons. */
export function statusText(phase: Phase, tracing: Tracing, trusted: boolean): StatusText {
  if (phase === "starting") {
    return { text: "$(loading~spin) aotlens", tooltip: "The language server is starting.", isError: false };
  }
  if (phase !== "running") {
    const tooltip = "The language server is not running. Click for its log, or to start it again.";
    return { text: "$(error) aotlens", tooltip, isError: true };
  }
  if (tracing.running.length > 0) {
    const names = tracing.running.map(({ script, qualname }) => qualname ?? baseName(script)).join(", ");
    return { text: "$(sync~spin) aotlens", tooltip: `Tracing ${names}`, isError: false };
  }
  if (!trusted) {
    const tooltip = "Targets are marked; tracing runs their file, so it is off until you trust this workspace.";
    return { text: "$(workspace-untrusted) aotlens", tooltip, isError: false };
  }
  const traces = tracing.traced === 1 ? "1 trace" : `${tracing.traced || "no"} traces`;
  return { text: "$(circuit-board) aotlens", tooltip: `Ready, with ${traces}.`, isError: false };
}

const PARTS: Record<string, string> = {
  forward: "what runs in the forward, and what it saves",
  backward: "what runs in the backward",
  inference: "what runs",
  wrapper: "the module that is executed, with every step around the graphs",
  captured: "what your function recorded",
  functional: "the same without mutation",
  joint: "forward and backward before they are parted",
};

const FIRST = ["forward", "backward", "inference", "wrapper"];

/** The documents of a target for a menu, those that are opened most first. */
export function partItems(parts: readonly string[]): { label: string; description: string }[] {
  const first = FIRST.filter((part) => parts.includes(part));
  const rest = parts.filter((part) => !FIRST.includes(part));
  return [...first, ...rest].map((label) => ({ label, description: PARTS[label] ?? "kernel" }));
}

function baseName(path: string): string {
  return path.split(/[\\/]/).pop() ?? path;
}
