"""Record Inductor's kernel calls while it generates one graph: their order, and what each accesses.

Invariant: no decision of Inductor's changes. The wrapped functions define a kernel, comment a call, or decide
whether two nodes can be fused.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from torch import fx

from aotlens.codegen.gpu.cost_model.fusion import FusionRejections
from aotlens.codegen.gpu.cost_model.node_flops import (
    NODE_NAME_KEY,
    in_graph_order,
    library_flops,
    program_node_names,
)
from aotlens.codegen.gpu.cost_model.traffic import Traffic, flat, is_user_kernel
from aotlens.codegen.gpu.records import Access, KernelCall, NodeWork, NotFused
from aotlens.errors import InternalError
from aotlens.model.report import Phase
from aotlens.torch_api.gpu import compiling_modules
from aotlens.torch_api.replacements import Replacement, replacing

LAST_SUM = "torch.sum"
"""How the wrapper finishes a reduction of which a kernel left partial sums, in f32."""
SUM_ITEM = 4
"""The bytes of one partial sum."""
Account = tuple[tuple[Access, ...], tuple[NodeWork, ...]]
"""What one call accesses, and its work."""

SEEDS = "inductor_seeds"
"""Part of the names of nodes that generate seeds."""


class _NotLaunched:
    """Replaces a kernel that is compiled later."""

    def run(self, *args: Any, **kwargs: Any) -> None:
        raise InternalError("a kernel for a GPU that is not there cannot run")


@dataclass(slots=True)
class InductorTrace:
    """The recorded calls; mutable while Inductor works."""

    phase: Phase
    modules: SimpleNamespace
    sources: dict[str, str] = field(default_factory=dict)
    """The kernels' sources by name."""
    calls: list[KernelCall] = field(default_factory=list)
    rejections: FusionRejections = field(default_factory=FusionRejections)
    defined: dict[str, Any] = field(default_factory=dict)
    """Inductor's kernels by name, the latest last."""
    unknown: list[str] = field(default_factory=list)
    """Calls whose accesses and work are unknown, and why."""

    def not_fused(self) -> tuple[NotFused, ...]:
        """Return the pairs of calls that share a value."""
        return tuple(self.rejections.between(self.calls))

    def define(self, name: str, kernel: Any) -> None:
        self.defined.pop(name, None)
        self.defined[name] = kernel

    def kernel_call(self, schedule: Any, name: str | None) -> None:
        """Record a launch of a generated kernel; without a name, of the one defined last."""
        name = name or next(reversed(self.defined))
        kernel = self.defined[name]
        members = _operations_of(schedule)
        origins = in_graph_order(origin for node in members for origin in node.node.origins)
        traffic = Traffic(self.modules)
        partial_sums, final_sums = traffic.partial_sum_accesses(kernel, len(self.calls))

        def account() -> Account:
            accesses = (*traffic.kernel_accesses(members, kernel), *partial_sums)
            return accesses, tuple(part for node in members for part in traffic.work(node))

        operations = [node.get_name() for node in members]
        self._add(name, origins, operations, self._checked_account(name, traffic, account))
        for read, written in final_sums:
            work = tuple(NodeWork(node, read.bytes // SUM_ITEM, "f32", False) for node in read.by)
            final_sum = KernelCall(LAST_SUM, self.phase, read.by, (read, written), work, is_extern=True)
            self.calls.append(final_sum)

    def cpu_call(self, schedule: Any, name: str) -> None:
        """Record a call of a CPU kernel; it uses no GPU memory."""
        members = _operations_of(schedule)
        nodes = program_node_names(in_graph_order(origin for node in members for origin in node.node.origins))
        self.calls.append(KernelCall(name, self.phase, nodes, is_extern=True, on_cpu=True))

    def library_call(self, call: Any, name: str) -> None:
        origins = _computed(call)
        traffic = Traffic(self.modules)

        def account() -> Account:
            # the work of a user's kernel is unknown
            work = () if is_user_kernel(call) else library_flops(origins)
            return tuple(traffic.library_accesses(call, origins)), work

        outputs = flat(getattr(call, "outputs", ()))
        parts = [part.get_operation_name() for part in outputs if hasattr(part, "get_operation_name")]
        operations = [call.get_operation_name(), *parts]
        self._add(name, origins, operations, self._checked_account(name, traffic, account), is_extern=True)

    def _checked_account(self, name: str, traffic: Traffic, account: Callable[[], Account]) -> Account:
        """Return the account of one call; empty, with a note, where it fails, since the kernels matter
        more."""
        try:
            result = account()
        except Exception as error:  # noqa: BLE001 (an operator that we have not met; it is reported)
            self.unknown.append(
                f"what `{name}` reads, writes and computes is not known ({type(error).__name__}: {error})"
            )
            return (), ()
        return result if traffic.is_known else ((), ())

    def _add(
        self,
        name: str,
        origins: list[fx.Node],
        operations: list[str],
        account: Account,
        is_extern: bool = False,
    ) -> None:
        nodes = program_node_names(origins)
        added = "" if nodes else _added(origins)
        self.rejections.note_call(id(self.modules.v.graph.scheduler), operations, len(self.calls))
        self.calls.append(KernelCall(name, self.phase, nodes, *account, added, is_extern))


def _operations_of(schedule: Any) -> list[Any]:
    """Return the scheduler's operations in a kernel; markers, such as of a reduction's end, have none."""
    return [
        operation
        for scheduled in schedule
        if hasattr(scheduled, "get_nodes")
        for operation in scheduled.get_nodes()
    ]


def _computed(call: Any) -> list[fx.Node]:
    """Return the graph node that a library call computes; where Inductor does not say, the last of its
    origins.

    A call is created while the last origin is lowered; the others went into its arguments.
    """
    if call.origin_node is not None:
        return [call.origin_node]
    origins = in_graph_order(call.origins)
    operator = getattr(call, "op_overload", None)
    return [node for node in origins if node.target is operator] or origins[-1:]


def _added(origins: list[fx.Node]) -> str:
    """Return why a call exists that no node of the program asks for."""
    if not origins:
        return "Inductor's scheduler adds it: no node of the graph asks for it"
    if any(SEEDS in node.name for node in origins):
        return "Inductor takes a seed for the random numbers of its kernels"
    what = ", ".join(f"`{node.name}`" for node in origins[:3])
    return f"a pass of Inductor's over the graph adds it, as {what}"


@contextmanager
def tracing_inductor(phase: Phase) -> Iterator[InductorTrace]:
    """Record Inductor's calls in this process; kernels are kept as sources instead of compiled."""
    modules = compiling_modules()
    trace = InductorTrace(phase, modules)
    modules.carried_metadata.append(NODE_NAME_KEY)  # passes copy it from a replaced node to the new one
    with ExitStack() as stack:
        stack.callback(modules.carried_metadata.remove, NODE_NAME_KEY)
        for owner, name, instead in _listeners(trace):
            stack.enter_context(replacing(Replacement(owner, name, instead, "it is listened to")))
        yield trace


Listener = tuple[Any, str, Callable[..., Any]]
"""An owner, the name of its function, and the wrapper that replaces it."""


def _listeners(trace: InductorTrace) -> tuple[Listener, ...]:
    """Return the wrapper of each function."""
    modules = trace.modules
    scheduling = modules.triton_codegen.TritonScheduling
    define: Callable[..., str] = scheduling.define_kernel
    comment: Callable[..., None] = scheduling.codegen_comment
    comment_of_cpu: Callable[..., None] = modules.cpp_codegen.CppScheduling.codegen_comment

    def keep_source(self: Any, kernel_name: str, source_code: str, device_str: str = "cuda") -> _NotLaunched:
        trace.sources[kernel_name] = source_code
        return _NotLaunched()

    def note_kernel(self: Any, src_code: str, node_schedule: Any, kernel: Any) -> str:
        name = define(self, src_code, node_schedule, kernel)
        trace.define(name, kernel)
        return name

    def note_launch(self: Any, node_schedule: Any, kernel_name: str | None = None) -> None:
        comment(self, node_schedule, kernel_name)
        trace.kernel_call(node_schedule, kernel_name)

    def note_cpu_call(self: Any, node_schedule: Any, kernel_name: str | None = None) -> None:
        comment_of_cpu(self, node_schedule, kernel_name)
        if kernel_name is not None:
            trace.cpu_call(node_schedule, kernel_name)

    def note_library_call(node: Any, name: str, is_extern: bool = False) -> int:
        """Return a number, as the function that it replaces: Inductor writes it beside the call."""
        if is_extern:  # the others are generated kernels, which `codegen_comment` announces
            trace.library_call(node, name)
        return len(trace.calls)

    return (
        (modules.async_compile.AsyncCompile, "triton", keep_source),
        (scheduling, "define_kernel", note_kernel),
        (scheduling, "codegen_comment", note_launch),
        (modules.cpp_codegen.CppScheduling, "codegen_comment", note_cpu_call),
        (modules.debug, "set_kernel_post_grad_provenance_tracing", note_library_call),
        *_fusion_listeners(trace),
    )


def _fusion_listeners(trace: InductorTrace) -> tuple[Listener, ...]:
    """Return the wrappers that record why two of the scheduler's nodes are not fused."""
    scheduler = trace.modules.scheduler
    can_fuse: Callable[..., bool] = scheduler.Scheduler.can_fuse
    cycles: Callable[..., bool] = scheduler.Scheduler.will_fusion_create_cycle

    def record_answer(self: Any, node1: Any, node2: Any, *args: Any, **kwargs: Any) -> bool:
        trace.rejections.begin()
        fused = False
        try:
            fused = can_fuse(self, node1, node2, *args, **kwargs)
        finally:
            trace.rejections.end((node1, node2), fused)
        return fused

    def record_reason(self: Any, reason: str, *args: Any) -> None:
        trace.rejections.add_reason(reason % args)

    def record_cycle(self: Any, node1: Any, node2: Any) -> bool:
        creates_cycle = cycles(self, node1, node2)
        if creates_cycle:
            trace.rejections.note((node1, node2), "will create cycle")
        return creates_cycle

    return (
        (scheduler.Scheduler, "can_fuse", record_answer),
        (scheduler.Scheduler, "will_fusion_create_cycle", record_cycle),
        (scheduler.WhyNoFuse, "__call__", record_reason),
    )
