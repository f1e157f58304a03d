"""Export: what a graph without a wrapper, or a module text without this process, cannot express."""

from aotlens.errors import RejectedAssertionError, RejectedRuntimeError
from aotlens.unsupported.case import Case

CASES = (
    Case(
        "export-side-effect",
        "aot_export of a function that stores a tensor in {binding}",
        "return the tensor",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-inductor-setting",
        "export of `{target}` under Inductor's setting `{setting}`, which no text can hold",
        "leave `{setting}` out, or export with `--backend eager`",
    ),
    Case(
        "export-functional-rng",
        "Functionalized RNG is not currently supported in the aot_export workflow",
        "set `functionalize_rng_ops` to False",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-duplicated-inputs",
        "Encountered duplicated inputs that are mutated in the graph: {inputs}",
        "pass a clone as one of them",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-joint-inputs",
        "aot_export_joint_simple requires inputs to be a single list/tuple",
        "flatten them first",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-joint-outputs",
        "aot_export_joint_simple requires outputs to be a single list/tuple",
        "flatten them first",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-joint-nested-outputs",
        "aot_export_joint_simple requires individual outputs not to be pytrees",
        "flatten them first",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-no-loss-index",
        "trace_joint=True without output_loss_index: it is required that one of your forward "
        "outputs must be a scalar loss",
        "give its position as `output_loss_index`",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-output-type",
        "Expected forward output to be either a tensor or a list/tuple of tensors, found {type}",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-loss-without-grad",
        "The output at index {index} was marked as the loss, but it does not require gradients",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-loss-shape",
        "We require the output marked as the loss (at index {index}) to be a scalar, but it "
        "has shape {shape}",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-free-variable",
        "aot_export of a function that reads the free variable `{name}`, which requires grad",
        "pass it, or make it a parameter",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-subclass",
        "aot_export is not currently supported with traceable tensor subclass: `{input}`, a `{type}`",
        "pass its inner tensors",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-joint-mutation",
        "aot_export_joint_simple does not support input mutations: `{input}` is written to",
        "return the new value",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-joint-alias",
        "aot_export_joint_simple does not support outputs that alias inputs: `{output}` ({reason})",
        "return a clone",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-joint-nested-inputs",
        "aot_export_joint_simple requires individual inputs not to be pytrees: argument {index} is a {type}",
        "flatten them first",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-other-gradient",
        "Found an output of the forward that requires gradients, that was not the scalar "
        "loss: output {index}, while output {loss} is the loss",
        "detach output {index}",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-metadata-mutation",
        "Found an input that received a metadata mutation: `{input}`",
        "export a function that works on a view of it",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-aliased-inputs",
        "Encountered aliased inputs that are mutated in the graph: `{input}` and {others}",
        "pass clones of them",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-input-with-grad",
        "Found a graph input that requires gradients, and received a mutation: `{input}`",
        "write to a clone of it",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-pre-dispatch-joint",
        "pre_dispatch is not supported when trace_joint is True",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-serializable",
        "`serializable=True` for `{target}`: the callables that compilers return cannot be written as text",
        "use `aotlens.export`, which writes a module as text, or keep the joint graph and recompile it",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-parameter-without-gradient",
        "Found a parameter that did not receive a gradient: `{parameter}`",
        "let the loss depend on it, or do not let it require grad",
        error=RejectedAssertionError,
    ),
    Case(
        "export-frozen-storage",
        "cannot mutate tensors with frozen storage: a write, before dispatch, to the output "
        "of an operator that may be its argument",
        "write to a clone, or export without `pre_dispatch`",
        error=RejectedRuntimeError,
    ),
    Case(
        "export-of-side-effect",
        "export of `{target}`, which stores a value in {binding}",
        "return the value instead",
    ),
    Case(
        "export-of-process-value",
        "export of `{target}`, which needs {value} (`{name}`)",
        "{advice}",
    ),
)
