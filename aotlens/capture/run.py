"""The run of the user's function on fake tensors.

Invariant: grad mode and the stack of modes are restored whatever happens in the user's function.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from aotlens.capture.autograd.custom_functions import apply_function
from aotlens.capture.autograd.graph_walk import requires_grad
from aotlens.capture.autograd.saved_tensor_hooks import callers_hooks
from aotlens.capture.device_checks import reject_mixed_devices
from aotlens.capture.error_translation import translated_errors
from aotlens.capture.free_variables.captured_tensors import used_inputs
from aotlens.capture.free_variables.state import OutputWithUpdates
from aotlens.capture.free_variables.stores import flatten_with_path
from aotlens.capture.function_fixes import as_linear_map, rnn_layers_with_dropout
from aotlens.capture.hop.lifting import Lifting, call_higher_order, lifting
from aotlens.capture.hop.loop_numbers import record_loop
from aotlens.capture.hop.region_gradient import record_region_call
from aotlens.capture.hop.triton_kernels import launch_as_operator
from aotlens.capture.inputs.exit_state import (
    grad_fns_at_exit,
    output_exit,
    reject_attachments,
    reject_retain_grad,
    with_exit,
)
from aotlens.capture.inputs.fake_inputs import free_tensor_inputs, make_inputs
from aotlens.capture.inputs.synthetic_bases import inputs_with_bases
from aotlens.capture.modes import Settings, check_modes_restored, current_modes, isolated_from_caller
from aotlens.capture.operator_fixes import KERNEL_DECOMPOSITIONS
from aotlens.capture.provenance.frames import call_boundary
from aotlens.capture.provenance.variables import VariableObserver
from aotlens.capture.recorded import Snapshot, leaves_and_unreturned
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import (
    Captured,
    CapturedInput,
    FlatCall,
    OpenInput,
    OutputExit,
    Structure,
    Subject,
)
from aotlens.capture.rng.random_op_rules import has_random_rules
from aotlens.capture.symbols.guards import recording_guards
from aotlens.capture.symbols.symint_calls import SymbolicCalls, index_with_scalars
from aotlens.ir.origin import Frames
from aotlens.model.report import Variable
from aotlens.torch_api.autograd import without_compiled_autograd
from aotlens.torch_api.fake.gpu import emulates_gpu
from aotlens.torch_api.fake.tensors import mute_fake_tensor_log
from aotlens.torch_api.modes import (
    function_mode_below,
    hidden_from_user_modes,
    with_user_function_modes,
    without_onednn,
)
from aotlens.torch_api.operators import python_dispatcher, pytree
from aotlens.torch_api.patches.scopes import patched
from aotlens.torch_api.patches.table import GRAD_MODE, RECURRENT_DROPOUT, TRACE
from aotlens.torch_api.patches.trace_handlers import TraceHandlers
from aotlens.torch_api.rng import without_functional_rng
from aotlens.torch_api.saved_tensor_hooks import has_saved_tensor_hooks
from aotlens.unsupported import unsupported

PLAIN_CLASSES = (torch.Tensor, torch.nn.Parameter)
"""Classes of tensors with real memory."""
GRADIENT_RULES: dict[str, Callable[..., Any]] = {
    "invoke_subgraph": lambda _, args, kwargs: record_region_call(*args, **kwargs),
    "while_loop": record_loop,
}
"""By higher-order operator: our rule, which precedes torch's own."""


def capture_run(subject: Subject, call: FlatCall, settings: Settings) -> tuple[Captured, Recorder]:
    """Run the function once; return what was captured, and the recording, to which later stages add nodes.

    Raises:
        UnsupportedError: data-dependent control flow, or an unsupported operator or case.
    """
    recorder = _recorder(subject, settings)
    defined = Frames(known_spans=(subject.span,) if subject.span is not None else ())
    with settings.fake_mode, recorder.adding("capture", "an argument", defined):
        inputs, base_groups = make_inputs(recorder, call.values, call.slots, settings.dynamic)
    _note_arguments(recorder, inputs, call.values)
    ran = _run(recorder, call, inputs, settings)
    check_modes_restored(ran.modes, recorder.span)
    _reject_seeding(recorder, ran.random_state)
    _reject_unseen_reads(recorder, inputs, call.values)
    recorder.random.reject_changed_generators()
    reject_attachments(recorder, inputs)
    changes = ran.changes
    result, filled = changes.result, changes.leaves
    returned = [*pytree.tree_leaves(result), *(value for _, value in filled)]
    requiring_grad = {id(value) for value in returned if requires_grad(value)}
    inputs = used_inputs(recorder, inputs, call.free_tensors, changes)
    inputs, bases = inputs_with_bases(recorder, inputs, base_groups, returned)
    inputs = (*inputs, *free_tensor_inputs(recorder, len(inputs)))
    if emulates_gpu():
        reject_mixed_devices(recorder.nodes, inputs)
    paths, spec = flatten_with_path(result)
    outputs = tuple(value for _, value in (*paths, *filled))
    reject_retain_grad(recorder, inputs, outputs)
    recorder.inputs = inputs
    states = _states_at_exit(recorder, outputs, requiring_grad)
    return Captured(
        subject=subject,
        inputs=states.inputs,
        outputs=outputs,
        output_exits=states.outputs,
        output_names=(*("out" + pytree.keystr(path) for path, _ in paths), *(name for name, _ in filled)),
        structure=Structure(
            arguments=call.arguments,
            result=spec,
            rebindings=changes.rebindings,
            rebound=changes.rebound,
            existing_containers=changes.existing_containers,
        ),
        recorded=states.snapshot.take(_known_tensors(recorder, outputs)),
        grad_enabled=ran.grad_enabled,
        fixed_modes=(ran.grad_enabled, ran.inference_mode) if ran.switches_grad_mode else None,
        inference_mode=ran.inference_mode,
        grad_mode_after=ran.grad_mode_after,
        modes=ran.modes,
        calls=tuple(recorder.calls),
        unwrapped_calls=tuple(recorder.unwrapped_calls),
        variables=ran.variables,
        bases=bases,
        hooks=callers_hooks(),
        has_hooks=has_saved_tensor_hooks(),
    ), recorder


@dataclass(frozen=True, slots=True)
class _Ran:
    """The function's one run, and torch's state around it."""

    changes: OutputWithUpdates
    grad_enabled: bool
    """At entry, like the modes and the random state."""
    inference_mode: bool
    modes: Any
    random_state: Any
    switches_grad_mode: bool
    grad_mode_after: bool
    variables: tuple[Variable, ...]


def _run(recorder: Recorder, call: FlatCall, inputs: tuple[OpenInput, ...], settings: Settings) -> _Ran:
    """Run the function once under the recorder."""
    grad_enabled, grad_switches = torch.is_grad_enabled(), list[bool]()
    inference_mode = torch.is_inference_mode_enabled()
    observer = VariableObserver() if settings.observe_variables else None
    random_state, modes = torch.get_rng_state(), current_modes()
    grad_mode_restored = torch.set_grad_enabled(grad_enabled)
    with recording(recorder, settings.dynamic), grad_mode_restored, translated_errors(recorder):
        watching_grad_mode = patched(GRAD_MODE, lambda: grad_switches.append(True))
        if settings.dynamic:
            recorder.on_data_dependent_number()
        with (
            observer or nullcontext(),
            recording_guards(recorder),
            watching_grad_mode,
            with_user_function_modes(),
        ):
            result = call_boundary(lambda: call.run(recorder, inputs))
        grad_mode_after = torch.is_grad_enabled()
    return _Ran(
        changes=result if isinstance(result, OutputWithUpdates) else OutputWithUpdates(result),
        grad_enabled=grad_enabled,
        inference_mode=inference_mode,
        modes=modes,
        random_state=random_state,
        switches_grad_mode=bool(grad_switches),
        grad_mode_after=grad_mode_after,
        variables=observer.variables() if observer is not None else (),
    )


@dataclass(frozen=True, slots=True)
class _StatesAtExit:
    """The recording when the function has returned, and what later stages read of inputs and outputs then."""

    snapshot: Snapshot
    inputs: tuple[CapturedInput, ...]
    outputs: Mapping[int, OutputExit]
    """By the output's identity."""


def _states_at_exit(recorder: Recorder, outputs: tuple[Any, ...], requiring_grad: set[int]) -> _StatesAtExit:
    """Return the states of the recorder's inputs and of the outputs.

    `requiring_grad` has the identities of the outputs that required grad when the function had returned.
    """
    with recorder.fake_mode, recorder.adding("capture", "an input, regenerated after a write"):
        grad_fns = grad_fns_at_exit(recorder, recorder.inputs)
        snapshot = _snapshot(recorder, outputs)
        inputs = tuple(
            with_exit(recorder, captured_input, grad_fn, snapshot)
            for captured_input, grad_fn in zip(recorder.inputs, grad_fns, strict=True)
        )
        exits = {
            id(value): output_exit(value, id(value) in requiring_grad)
            for value in outputs
            if isinstance(value, torch.Tensor)
        }
    return _StatesAtExit(snapshot, inputs, MappingProxyType(exits))


def _snapshot(recorder: Recorder, outputs: tuple[Any, ...]) -> Snapshot:
    """The moment at which the function has returned, with a constant for each output that is a real tensor.

    Raises:
        UnsupportedError: an output that the recording has not seen.
    """
    with recorder.fake_mode, recorder.adding("capture", "an output that the function has from outside"):
        for value in outputs:
            if isinstance(value, torch.Tensor):
                recorder.tracked(value)
    return Snapshot(recorder)


def _known_tensors(recorder: Recorder, outputs: tuple[Any, ...]) -> Iterator[Any]:
    """The tensors of which later stages may ask what the recording knows."""
    yield from (value for value in outputs if isinstance(value, torch.Tensor))
    yield from recorder.arguments
    yield from (captured_input.argument for captured_input in recorder.inputs if captured_input.is_tensor)
    yield from leaves_and_unreturned(recorder.calls)
    yield from leaves_and_unreturned(unwrapped.call for unwrapped in recorder.unwrapped_calls)


def _note_arguments(recorder: Recorder, inputs: tuple[OpenInput, ...], values: list[Any]) -> None:
    recorder.arguments = tuple(item.argument for item in inputs if item.is_tensor)
    recorder.originals = {id(item.argument): value for item, value in zip(inputs, values, strict=False)}
    recorder.argument_names = {id(item.argument): item.slot.name for item in inputs}


def _recorder(subject: Subject, settings: Settings) -> Recorder:
    recorder = Recorder(settings.fake_mode, settings.decompositions)
    recorder.origins.called_at = subject.called_at
    recorder.random.is_functional = has_random_rules(settings.decompositions)
    recorder.split_region = settings.split_region
    return recorder


def _reject_unseen_reads(recorder: Recorder, inputs: tuple[OpenInput, ...], values: list[Any]) -> None:
    """Reject a write to an input that the function also reads other than as an argument.

    Raises:
        AssertionError: as torch does for any tensor that is read this way.
    """
    written = {
        value.untyped_storage()._cdata: (captured_input.slot.name, captured_input.storage.writes[-1])
        for captured_input, value in zip(inputs, values, strict=False)
        if captured_input.storage is not None
        and captured_input.storage.writes
        and type(value) in PLAIN_CLASSES
    }
    if not written:
        return
    for fake, tensor in recorder.real_tensors.values():
        is_constant = type(tensor) in PLAIN_CLASSES and not recorder.tracked(fake).storage.inputs
        if is_constant and (storage := tensor.untyped_storage()._cdata) in written:
            name, write = written[storage]
            span = write.origin.location.innermost
            raise unsupported("write-to-free-variable", span, input=name, sizes=list(tensor.shape))


def _reject_seeding(recorder: Recorder, before: torch.Tensor) -> None:
    """Reject a changed RNG state: fake tensors do not advance it, so the function set it itself."""
    if not torch.equal(before, torch.get_rng_state()):
        torch.set_rng_state(before)
        raise unsupported("default-generator-state", recorder.span)


@contextmanager
def recording(recorder: Recorder, dynamic: bool) -> Iterator[None]:
    """Send the operators in the block through the recorder to fake tensors.

    oneDNN's recurrent layers read the grad mode at run time, which a graph cannot; without them torch
    decomposes its own kernels.  Autograd would run a GPU's backward on another thread, which has no
    recording.
    """
    with ExitStack() as stack:
        stack.enter_context(hidden_from_user_modes("recording"))
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        stack.enter_context(without_onednn())
        stack.enter_context(isolated_from_caller(recorder.saved))
        stack.enter_context(mute_fake_tensor_log())
        stack.enter_context(without_functional_rng())
        stack.enter_context(patched(TRACE, _handlers(recorder)))
        recorder.on_data_dependent_number = stack.enter_context(function_mode_below(SymbolicCalls()))
        stack.enter_context(without_compiled_autograd())
        if dynamic:
            stack.enter_context(patched(RECURRENT_DROPOUT, rnn_layers_with_dropout))
            stack.enter_context(python_dispatcher(KERNEL_DECOMPOSITIONS))
        stack.enter_context(lifting(recorder.originals))
        stack.enter_context(recorder.fake_mode)
        stack.enter_context(recorder)
        yield


def _handlers(recorder: Recorder) -> TraceHandlers:
    return TraceHandlers(
        rng_state=recorder.random,
        call_object_method=recorder.torchbind.call,
        checkpoint_region=recorder.checkpoints.region,
        note_undefined_tangents=recorder.unmaterialised_nodes.append,
        apply_graphs=partial(apply_function, recorder.origins),
        prepare_index=index_with_scalars,
        gradient_rules=GRADIENT_RULES,
        call_higher_order=call_higher_order,
        make_linear_map=as_linear_map,
        flex_attention_env=Lifting,
        launch_kernel=launch_as_operator,
    )
