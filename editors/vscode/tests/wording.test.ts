import assert from "node:assert/strict";
import { test } from "node:test";
import { chosenOnly, commandLine, forServer, initializationOptions, sameCommand } from "../src/launch";
import { gpuItems, IDLE, partItems, statusText } from "../src/wording";

const PYTHON = "/venv/bin/python";

test("the setting starts the server, or else the interpreter, or else the path", () => {
  assert.deepEqual(commandLine(["uv", "run", "aotlens", "lsp"], PYTHON), ["uv", "run", "aotlens", "lsp"]);
  assert.deepEqual(commandLine([], PYTHON), [PYTHON, "-P", "-m", "aotlens", "lsp"]);
  assert.deepEqual(commandLine([], undefined), ["aotlens", "lsp"]);
});

test("a command is the same where every word is", () => {
  assert.equal(sameCommand(["a", "b"], ["a", "b"]), true);
  assert.equal(sameCommand(["a", "b"], ["a b"]), false);
  assert.equal(sameCommand(undefined, ["a"]), false);
});

test("the server gets its own settings, without the editor's methods", () => {
  const section = { trace: "manual", server: { command: ["x"] }, inlayHints: { saved: false }, get: () => 1 };
  assert.deepEqual(forServer(section), { trace: "manual", inlayHints: { saved: false } });
});

test("a default is not sent, so that the project's setting counts", () => {
  const settings = { gpu: null, policy: "default", inlayHints: { saved: false, shapes: true } };
  const chosen: Record<string, object> = {
    policy: { key: "aotlens.policy", defaultValue: "min-cut", workspaceValue: "default" },
    "inlayHints.saved": { defaultValue: true, globalValue: false },
  };
  const sent = chosenOnly(settings, (name) => ({ defaultValue: 0, ...chosen[name] }));
  assert.deepEqual(sent, { policy: "default", inlayHints: { saved: false } });
});

test("the menu of GPUs marks the current one", () => {
  const gpus = [{ name: "H100 SXM", architecture: "sm_90", memoryGiB: 80 }];
  assert.deepEqual(gpuItems({ gpus, current: "H100 SXM" }), [
    { label: "no kernels", description: "" },
    { label: "H100 SXM", description: "sm_90, 80 GiB · now" },
  ]);
});

test("a workspace's settings cannot grant trust", () => {
  assert.equal(initializationOptions({ trusted: true }, false)["trusted"], false);
});

test("the status item tells starting, ready, tracing, untrusted and ended apart", () => {
  const tracing = { running: [{ script: "/a/model.py", qualname: null }], traced: 1 };
  const shown = [
    statusText("starting", IDLE, true),
    statusText("running", IDLE, true),
    statusText("running", tracing, true),
    statusText("running", IDLE, false),
    statusText("failed", IDLE, true),
  ];
  assert.equal(new Set(shown.map((one) => one.text)).size, shown.length);
  assert.equal(shown[1]?.tooltip, "Ready, with no traces.");
  assert.equal(shown[2]?.tooltip, "Tracing model.py");
  assert.deepEqual(
    shown.map((one) => one.isError),
    [false, false, false, false, true],
  );
});

test("the menu of documents has those that are opened most first, and every kernel", () => {
  const items = partItems(["captured", "forward", "backward", "wrapper", "triton_poi_fused_0.ptx"]);
  assert.deepEqual(
    items.map((item) => item.label),
    ["forward", "backward", "wrapper", "captured", "triton_poi_fused_0.ptx"],
  );
  assert.equal(items.at(-1)?.description, "kernel");
});
