"""Autograd inside the function: hooks, checkpoints, `.grad`, and what a backward may do."""

from aotlens.errors import RejectedAssertionError
from aotlens.unsupported.case import Case

CASES = (
    Case(
        "write-after-checkpoint",
        "a write to a tensor that a checkpointed function reads, after that function ran: "
        "eager recomputes it with the new values",
        "pass a clone to the function",
    ),
    Case(
        "write-in-nested-checkpoint",
        "a write to an argument of a checkpointed function inside another checkpoint",
        "pass a clone to the function",
    ),
    Case(
        "saved-under-hooks-then-written",
        "a value that is saved for the backward and mutated before it runs, under "
        "saved-tensor hooks, which may have packed the former value",
        "clone it before the change, or call the function without the hooks",
    ),
    Case(
        "hook-on-input",
        "a hook that the function registers on its input `{input}`",
        "register it outside the compiled function, or on a value that the function computes",
    ),
    Case(
        "attribute-of-input",
        "a function that sets the attribute `{attribute}` of its input `{input}`",
        "return the value instead",
    ),
    Case(
        "retain-grad",
        "`retain_grad` on an input or an output, whose `.grad` the compiled backward would not set",
        "take the gradient with `torch.autograd.grad`, or return what is computed from it separately",
    ),
    Case(
        "grad-of-input",
        "a function that reads or changes `{input}.grad`, which also a backward inside it does",
        "compute gradients with `torch.autograd.grad` and return them, or use "
        "`torch.compile(fn, backend='aotlens')`",
    ),
    Case(
        "failing-backward-after-storage-swap",
        "a backward that fails after a tensor got another storage (`set_`, `.data`): {error}",
        "assign to a new tensor",
    ),
    Case(
        "metadata-mutation-in-backward",
        "`{input}` is an input that had its metadata mutated in the backward",
        "take a view of it instead",
        error=RejectedAssertionError,
    ),
    Case(
        "write-in-forward-and-backward",
        "the backward writes to the input `{input}`, which the forward writes to as well",
        "write to a clone in one of them",
    ),
    Case(
        "set-between-uses-of-leaf",
        "`set_` of a leaf whose gradient comes from uses both before and after it",
        "use it on one side of `set_`, or return a new tensor",
    ),
    Case(
        "lost-for-derivative",
        "a derivative of the backward that needs what is not saved: {reason}",
        "{advice}",
    ),
    Case(
        "view-before-detach-and-write",
        "a view, taken before a write, of a tensor that is detached in place or is a leaf on "
        "the storage of another",
        "take the view after that",
    ),
)
