"""The layers hold: who may import whom, read from the source and proved by importing.

Invariant: a rule here is one function that lists its violations by file and line, so that a failure says
which import to move.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.import_graph import ROOT, Import, Module, cycles, modules, parsed, resolved


def _pipeline_stages() -> tuple[str, ...]:
    """The constant `STAGES` of the pipeline, read without importing torch."""
    values = (
        node.value
        for node in parsed("aotlens.pipeline").tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STAGES"
    )
    stages: tuple[str, ...] = ast.literal_eval(next(values))
    return stages


STAGES = _pipeline_stages()
PACKAGES_WITH_TORCH = ("ir", "frontends", "torch_api", "verify", "compile_cache", "gpu_emulation", "eager")
ENGINE = (*STAGES, *PACKAGES_WITH_TORCH, "pipeline", "compiled", "compilation")
STAGE_FUNCTIONS = {
    ("aotlens.capture.direct", "capture_direct"),
    ("aotlens.capture.dynamo", "capture_graph_module"),
    ("aotlens.analysis.stage", "analyse"),
    ("aotlens.joint.stage", "build_joint"),
    ("aotlens.partition.stage", "partition"),
    ("aotlens.codegen.stage", "generate"),
    ("aotlens.runtime.stage", "write_module"),
    ("aotlens.runtime.stage", "load_module"),
}
BELOW_THE_REPORT = (*STAGES, "ir", "errors", "torch_api")
ABOVE_THE_STAGES = ("view", "render", "diagnostics", "build", "compare", "worker", "session")
"""Modules that no stage imports, because they read the stages' records or run them."""
PEER = ("torch._functorch.aot_autograd", "torch._functorch._aot_autograd", "torch._functorch.partitioners")
"""Modules of torch that do the job of this project; tests and benchmarks compare with them."""

REPORT_LAYERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "model": ((), ()),
    "view": (("model",), ()),
    "diagnostics": (("model", "view"), ()),
    "compare": (("model", "view"), ()),
    "view.tabs": (("model", "view", "diagnostics", "compare"), ("pygments", "rich.cells")),
    "render": (("model", "view", "diagnostics", "compare"), ("rich", "pygments")),
}
"""The report's packages, which load without torch, with what each of them may import."""

WORKER_DATA = tuple(
    f"aotlens.worker.{name}"
    for name in (
        "client",
        "answers",
        "protocol",
        "codec",
        "grammar",
        "syntax_failure",
        "targets",
        "fit_results",
        "fit_command",
    )
)
"""Modules of the worker that load without torch."""

FRONT_END_MAY = (
    *(f"aotlens.{name}" for name in REPORT_LAYERS),
    "aotlens.policy",
    "aotlens.settings",
    *WORKER_DATA,
)
FRONT_ENDS = {
    "lsp_server": ("pygls", "lsprotocol"),
    "tui": ("textual", "textual_serve", "aiohttp", "rich", "pygments", "watchfiles"),
}
"""Each front end with its libraries."""


def _is_in(module: str, packages: tuple[str, ...] | frozenset[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _is_stdlib(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _at_run_time(module: Module) -> Iterator[Import]:
    """Yield imports that can happen, without those for the type checker."""
    return (entry for entry in module.imports if entry.when != "types")


def _say(module: Module, entry: Import) -> str:
    return f"{module.location(entry.line)} imports {resolved(entry)}"


def _is_report_data(name: str) -> bool:
    return _is_in(name, tuple(f"aotlens.{layer}" for layer in REPORT_LAYERS))


def _report_imports() -> Iterator[str]:
    for layer, (below, libraries) in REPORT_LAYERS.items():
        ours = tuple(f"aotlens.{name}" for name in (layer, *below, "errors", "_version"))
        for module in modules().values():
            inside = _is_in(module.name, (f"aotlens.{layer}",))
            if not inside or (layer == "view" and _is_in(module.name, ("aotlens.view.tabs",))):
                continue
            for entry in _at_run_time(module):
                loaded = resolved(entry)
                upwards = layer in ("view", "diagnostics", "compare") and _is_in(
                    loaded, ("aotlens.view.tabs",)
                )
                if upwards or not (_is_stdlib(loaded) or _is_in(loaded, (*ours, *libraries))):
                    yield _say(module, entry)


def _worker_imports() -> Iterator[str]:
    for name in ("aotlens.worker", "aotlens.disk_cache", *WORKER_DATA):
        for entry in _at_run_time(modules()[name]):
            loaded = resolved(entry)
            if not (
                _is_stdlib(loaded)
                or _is_in(loaded, (*WORKER_DATA, "aotlens.errors", "aotlens._version", "aotlens.disk_cache"))
                or _is_report_data(loaded)
            ):
                yield _say(modules()[name], entry)


def _front_end_imports() -> Iterator[str]:
    for module in modules().values():
        folder = module.name.partition(".")[0]
        if folder not in FRONT_ENDS:
            continue
        for entry in _at_run_time(module):
            loaded = resolved(entry)
            ours = _is_in(loaded, (folder, *FRONT_END_MAY)) or loaded in (
                "aotlens.errors",
                "aotlens._version",
                "aotlens.disk_cache",
            )
            if not (ours or _is_stdlib(loaded) or _is_in(loaded, FRONT_ENDS[folder])):
                yield _say(module, entry)


def _agents_imports() -> Iterator[str]:
    for module in modules().values():
        if not _is_in(module.name, ("aotlens.mcp",)):
            continue
        for entry in _at_run_time(module):
            loaded = resolved(entry)
            ours = _is_in(loaded, ("aotlens.mcp", "aotlens.cli", "aotlens.worker.process", *FRONT_END_MAY))
            plain = _is_stdlib(loaded) or loaded in ("aotlens.errors", "aotlens._version")
            if not (ours or plain or _is_in(loaded, ("mcp", "mcp_types"))):
                yield _say(module, entry)


def _private_torch() -> Iterator[str]:
    for module in modules().values():
        if module.package == "aotlens.torch_api":
            continue
        for entry in module.imports:
            path = f"{entry.module}.{entry.name or ''}".split(".")
            if path[0] in ("torch", "functorch") and any(step.startswith("_") for step in path[1:]):
                yield f"{module.location(entry.line)} imports {'.'.join(path)}"
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
                path = ast.unparse(node).split(".")
                if path[0] == "torch":
                    yield f"{module.location(node.lineno)} reads {'.'.join(path)}"


def _peer_imports() -> Iterator[str]:
    for module in modules().values():
        for entry in module.imports:
            names = (entry.module, f"{entry.module}.{entry.name}")
            if any(_is_in(name, (*PEER, "functorch.compile")) for name in names):
                yield f"{module.location(entry.line)} imports {names[1]}"


def _import_cycles() -> Iterator[str]:
    """Yield them whether an import runs at the start, in a function, or for types alone."""
    graph = {name: {resolved(entry) for entry in module.imports} for name, module in modules().items()}
    for group in cycles({name: {after for after in graph[name] if after in graph} for name in graph}):
        yield " <-> ".join(group)


def _package_cycles() -> Iterator[str]:
    stages = {f"aotlens.{stage}" for stage in (*STAGES, "ir")}
    graph: dict[str, set[str]] = {stage: set() for stage in stages}
    for module in modules().values():
        if module.package in stages:
            loaded = {".".join(resolved(entry).split(".")[:2]) for entry in _at_run_time(module)}
            graph[module.package] |= (loaded & stages) - {module.package}
    for group in cycles(graph):
        yield " <-> ".join(group)


def _stages_called_elsewhere() -> Iterator[str]:
    for module in modules().values():
        for entry in module.imports:
            inside = entry.module.split(".")[:2] == module.name.split(".")[:2]
            if (
                (entry.module, entry.name) in STAGE_FUNCTIONS
                and not inside
                and module.name not in ("aotlens.pipeline", "aotlens.compiled")
            ):
                yield f"{module.location(entry.line)} imports the stage {entry.module}.{entry.name}"


def _stages_import_upwards() -> Iterator[str]:
    above = tuple(f"aotlens.{name}" for name in ABOVE_THE_STAGES)
    for module in modules().values():
        if _is_in(module.name, tuple(f"aotlens.{name}" for name in BELOW_THE_REPORT)):
            for entry in module.imports:
                if _is_in(resolved(entry), above):
                    yield _say(module, entry)


OPEN_RECORDING = frozenset({"Recorder", "Recording", "Storage", "Tracked", "Symbols"})
"""Types that change while a function is recorded."""
VALUES = {
    "aotlens.capture.records": ("CapturedInput", "Structure", "Captured"),
    "aotlens.capture.recorded": ("StorageState", "TensorState", "Recorded"),
    "aotlens.analysis.records": ("InputAliasInfo", "OutputAliasInfo", "ViewAndMutationMeta"),
    "aotlens.ir.program": ("Node", "Program"),
}
"""The records from capture to analysis, and programs: nothing in them changes."""
BUILDER_USERS = {
    "aotlens.pipeline": "passes it from stage to stage",
    "aotlens.joint": "records the backward, and later derivatives",
    "aotlens.partition.derivatives": "reads the nodes of a derivative that was just recorded",
    "aotlens.partition.saved_tensor_hooks": "records the caller's hooks on saved tensors",
    "aotlens.build.captured": "has a recording of its own, in which it writes the user's calls down",
    "aotlens.build.replay": "has a recorder of its own, for the forward with other decompositions",
}
"""What names the open recording outside capture, and why."""
CHANGES_FROZEN = {
    "aotlens.options": "normalises a field in `__post_init__`",
    "aotlens.capture.free_variables.stores": "binds attributes of the user's frozen objects",
    "aotlens.frontends.compiled_module": "shares the attributes of a module that is no record",
    "aotlens.capture.mutations.recorded_nodes": "an input becomes a view, or a tensor another in place",
}
"""What uses `object.__setattr__`, and why: in capture, before `Recorded` holds the node."""


def _open_recordings_in_records() -> Iterator[str]:
    for name, classes in VALUES.items():
        module = modules()[name]
        nodes = {node.name: node for node in module.tree.body if isinstance(node, ast.ClassDef)}
        for node in (nodes[class_name] for class_name in classes):
            if not any("frozen=True" in ast.unparse(decorator) for decorator in node.decorator_list):
                yield f"{module.location(node.lineno)} {node.name} is not frozen"
            for field in node.body:
                if isinstance(field, ast.AnnAssign):
                    types = {part.id for part in ast.walk(field.annotation) if isinstance(part, ast.Name)}
                    if types & OPEN_RECORDING:
                        yield f"{module.location(field.lineno)} {ast.unparse(field)}"


def _builder_users() -> Iterator[str]:
    for module in modules().values():
        if _is_in(module.name, ("aotlens.capture", *BUILDER_USERS)):
            continue
        for entry in module.imports:
            if entry.module.startswith("aotlens.capture") and entry.name in OPEN_RECORDING:
                yield _say(module, entry)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node).endswith("joint.builder"):
                yield f"{module.location(node.lineno)} reads {ast.unparse(node)}"


def _changes_of_frozen() -> Iterator[str]:
    calls = [
        (module, node)
        for module in modules().values()
        if _is_in(module.name, ("aotlens",))
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "object.__setattr__"
    ]
    for module, call in calls:
        if module.name not in CHANGES_FROZEN:
            yield f"{module.location(call.lineno)} changes a frozen record"
    for name in CHANGES_FROZEN.keys() - {module.name for module, _ in calls}:
        yield f"{name} changes none: take it off the list"


RULES = {
    "captured records, programs and nodes are values": _open_recordings_in_records,
    "few modules add to the recording": _builder_users,
    "nobody changes a node or a program": _changes_of_frozen,
    "the report's packages import downwards, and few libraries": _report_imports,
    "the worker's client and data are standard library": _worker_imports,
    "front ends import the report's packages, the worker's client and the cache only": _front_end_imports,
    "the server for agents knows the commands, the report and the worker's client only": _agents_imports,
    "private torch names stand in torch_api": _private_torch,
    "the product never imports the peer": _peer_imports,
    "no module imports itself in a circle": _import_cycles,
    "the stages' packages form no circle": _package_cycles,
    "the stages import nothing of the report, the worker and the session": _stages_import_upwards,
    "only the pipeline and what-ifs call stages": _stages_called_elsewhere,
}


@pytest.mark.parametrize("name", RULES)
def test_rule(name: str) -> None:
    broken = list(RULES[name]())
    assert not broken, "\n".join([name, *broken])


def test_the_pipeline_calls_every_stage() -> None:
    """Otherwise the rule above would hold by finding nothing."""
    assert {(entry.module, entry.name) for entry in modules()["aotlens.pipeline"].imports} >= STAGE_FUNCTIONS
    assert {module.split(".")[1] for module, _ in STAGE_FUNCTIONS} == set(STAGES)


PIPELINE_LINES = 150
"""The pipeline is a table of contents: what does not fit stands in `compilation` or in a stage."""


def test_the_pipeline_is_short_and_has_the_only_list_of_stages() -> None:
    assert len(modules()["aotlens.pipeline"].path.read_text(encoding="utf-8").splitlines()) <= PIPELINE_LINES
    lists = [
        module.name
        for module in modules().values()
        for node in module.tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STAGES"
    ]
    assert lists == ["aotlens.pipeline"]


def test_torch_api_offers_what_is_asked_for() -> None:
    """An unused name is one more that a new release of torch may break."""
    entries = [entry for module in modules().values() for entry in module.imports]
    asked = {(entry.module, entry.name) for entry in entries if entry.module.startswith("aotlens.torch_api.")}
    listed = {
        (module.name, name)
        for module in modules().values()
        if module.package == "aotlens.torch_api"
        for node in module.tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.literal_eval(node.value)
    }
    assert listed == asked


def _loaded_by(statement: str) -> set[str]:
    """Return the modules that a fresh Python has loaded after the statement."""
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def _engine_in(loaded: set[str]) -> set[str]:
    heavy = ("torch", "ortools", "numpy", *(f"aotlens.{part}" for part in ENGINE))
    return {name for name in loaded if _is_in(name, heavy)}


@pytest.mark.parametrize(
    "statement",
    [
        "import aotlens",
        "import aotlens.model, aotlens.render.text.report, aotlens.diagnostics.diagnose",
        f"import {', '.join(WORKER_DATA)}",
        "import aotlens.cli.commands.check, aotlens.render.findings_text, aotlens.render.sarif",
        "import lsp_server.app",
        "import tui.app",
        "import aotlens.cli",
        "import aotlens.mcp.server",
    ],
)
def test_loads_neither_torch_nor_the_engine(statement: str) -> None:
    assert _engine_in(_loaded_by(statement)) == set()


def test_help_loads_neither_torch_nor_the_engine() -> None:
    statement = "import aotlens.cli\ntry:\n    aotlens.cli.main(['--help'])\nexcept SystemExit:\n    pass"
    assert _engine_in(_loaded_by(statement)) == set()


FRONT_ENDS_TESTS = ("check", "cli", "editors", "lsp", "tui")
"""Folders of tests; modules shared by two of them are above them, or in `tests/report`."""


def test_tests_of_one_front_end_import_no_others() -> None:
    folders = [f"tests.{name}" for name in FRONT_ENDS_TESTS]
    crossing = [
        f"{path.relative_to(ROOT)}:{node.lineno} imports {node.module}"
        for own in folders
        for path in sorted((ROOT / own.replace(".", "/")).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and any(_is_in(node.module or "", (other,)) for other in folders if other != own)
    ]
    assert crossing == []


def test_the_report_loads_nothing_but_the_standard_library() -> None:
    ours = {name for name in _loaded_by("import aotlens.model") if name.partition(".")[0] == "rich"}
    assert ours == set()


def test_the_first_screen_of_the_app_loads_no_record_of_the_report() -> None:
    """The records and the panes load after the first paint."""
    loaded = _loaded_by("import aotlens.cli.commands.tui, tui.launch, tui.tracing")
    assert not loaded & {"aotlens.model.report", "aotlens.model.codec", "tui.panes.overview", "tui.commands"}
