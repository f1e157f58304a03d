"""The stages of a compilation, in order: the only list of them, and what runs them.

    capture    a callable or graph, example arguments  ->  Captured, builder
    analysis   Captured, builder                       ->  ViewAndMutationMeta
    joint      Captured, builder, ViewAndMutationMeta  ->  JointProgram
    partition  JointProgram, policy                    ->  Partitioned
    codegen    Partitioned, backend                    ->  Generated
    runtime    Partitioned, Generated                  ->  LoadedModule

The builder is the recording, to which analysis and joint add nodes; each returns what it learned as a record.
Invariant: data goes one way; `Compiled` holds the record of every stage, which `aotlens.build` reports.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aotlens.analysis.stage import analyse
from aotlens.capture.direct import capture_direct
from aotlens.capture.dynamo import GraphCall, capture_graph_module, graph_call
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import Captured
from aotlens.capture.symbols.numbers import compile_with_int_symbols
from aotlens.codegen.stage import generate
from aotlens.compilation import Compilation, DirectCall, bound_call
from aotlens.compiled import Compiled, StageRecords, restore_compiled
from aotlens.joint.inductor_passes import with_joint_passes
from aotlens.joint.records import JointProgram
from aotlens.joint.stage import build_joint
from aotlens.observe import announce_compiled, announce_target
from aotlens.options import CompileOptions
from aotlens.partition.records import Partitioned
from aotlens.partition.stage import partition
from aotlens.runtime.stage import load_module, write_module
from aotlens.torch_api.fake.tensors import without_fake_mode

STAGES = ("capture", "analysis", "joint", "partition", "codegen", "runtime")


def compile_direct(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: CompileOptions,
    name: str | None = None,
) -> Compiled:
    """Compile a function or module for arguments like these.

    Raises:
        UnsupportedError: a case that the engine does not support, with the user's line.
        BackendError: code generation failed.
    """
    call, compilation = DirectCall(fn, args, kwargs, name), Compilation(options)

    def compile_call(int_symbols: bool) -> Compiled:
        with compilation.clock.stage("capture"):
            captured, builder = _capture(call, compilation, int_symbols)
        name = captured.subject.name
        announce_target(name)
        return _compile_captured(captured, builder, compilation.without_cache(name))

    with without_fake_mode():  # the caller's, if one is on; capture enters its own
        compiled = compile_with_int_symbols(compile_call, options.dynamic, call.inputs)
    announce_compiled(compiled)
    return compiled


def compile_graph_module(gm: Any, example_inputs: Any, options: CompileOptions) -> Compiled:
    """Compile a graph that Dynamo captured; `call` takes its flat inputs and returns a tuple."""
    compilation, compiled = Compilation(options), None
    with compilation.clock.stage("cache" if compilation.uses_cache else "capture"):
        call = graph_call(gm, example_inputs)
        announce_target(call.subject.name)
        if compilation.uses_cache:
            compilation, cached_call = compilation.look_up(call)
            if cached_call is not None:
                compiled = restore_compiled(cached_call, compilation, _compile_graph)
    if compiled is None:
        compiled = _compile_graph(call, compilation)
        if compilation.uses_cache:
            compilation.store(compiled.module.text, compiled.code, gm)
    announce_compiled(compiled)
    return compiled


def trace_direct(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: CompileOptions
) -> JointProgram:
    """Return the joint program of a function or module, for callers that partition it themselves."""
    call, compilation = DirectCall(fn, args, kwargs), Compilation(options)

    def trace(int_symbols: bool) -> JointProgram:
        return _joint_program(*_capture(call, compilation, int_symbols), compilation)

    return compile_with_int_symbols(trace, options.dynamic, call.inputs)


def compile_joint(joint: JointProgram, module: Any, options: CompileOptions) -> Compiled:
    """Compile `module`, a graph module of a joint program that its user may have edited."""
    compilation = Compilation(options)
    with compilation.clock.stage("partition"):
        parts = partition(joint, options.partition, module)
    compiled = _compile_parts(parts, compilation)
    compiled = replace(compiled, call=compiled.module.call)
    announce_compiled(compiled)
    return compiled


def _capture(call: DirectCall, compilation: Compilation, int_symbols: bool) -> tuple[Captured, Recorder]:
    settings = compilation.direct_settings(call, int_symbols)
    with compilation.capture_context():
        captured, builder = capture_direct(call.fn, call.args, call.kwargs, settings, call.name)
    return compilation.with_output_structure(captured), builder


def _compile_graph(call: GraphCall, compilation: Compilation) -> Compiled:
    with compilation.clock.stage("capture"):
        as_tensors = compilation.options.for_inductor  # its graphs cannot read a float from a tensor
        decompositions, split = compilation.decompositions, compilation.split_region
        captured, builder = capture_graph_module(call, decompositions, split, floats_as_tensors=as_tensors)
    return _compile_captured(captured, builder, compilation)


def _compile_captured(captured: Captured, builder: Recorder, compilation: Compilation) -> Compiled:
    joint, options = _joint_program(captured, builder, compilation), compilation.options
    if compilation.runs_joint_passes:
        with compilation.clock.stage("joint passes"):
            joint = with_joint_passes(joint, dict(options.inductor_config))
    with compilation.clock.stage("partition"):
        parts = partition(joint, options.partition)
    return _compile_parts(parts, compilation)


def _joint_program(captured: Captured, builder: Recorder, compilation: Compilation) -> JointProgram:
    with compilation.clock.stage("analysis"):
        meta = analyse(captured, builder, compilation.options.keep_input_mutations)
    with compilation.clock.stage("joint"):
        return build_joint(captured, builder, meta, compilation.puts_aliases_in_graph)


def _compile_parts(parts: Partitioned, compilation: Compilation) -> Compiled:
    captured, clock = parts.joint.captured, compilation.clock
    with clock.stage("codegen"):
        code = compilation.with_late_backward(generate(parts, compilation.options), captured.subject)
        text = write_module(parts, code)
    with clock.stage("runtime"):
        module = load_module(text, captured.subject.name)
        call = bound_call(module, captured.subject.function, captured)
    records = StageRecords(parts, code)
    return Compiled(captured.subject, records, module, call, clock.timings_ms, compilation.cache_entry)
