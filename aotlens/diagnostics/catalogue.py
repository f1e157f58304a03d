"""The catalogue of diagnostics: one row a code, from which `aotlens rule` and `docs/rules/` are made.

Invariant: a code never changes its meaning, and every code that is ever reported has a row.
"""

from aotlens.diagnostics.budgets import BUDGETS
from aotlens.diagnostics.cuda_graphs import CUDA_GRAPHS
from aotlens.diagnostics.dynamo import DYNAMO
from aotlens.diagnostics.gpu import GPU
from aotlens.diagnostics.ranks import RANKS
from aotlens.diagnostics.rule import FAMILIES, Rule
from aotlens.diagnostics.saved import SAVED

__all__ = ["FAMILIES", "RULES", "Rule"]

MUTATION = (
    Rule(
        "AL101",
        "An argument that carries a gradient is changed in place",
        "warning",
        "The function writes to an argument that is part of an autograd graph. The compiled graph"
        " computes the new value, and the wrapper copies it back outside of the graph, where autograd"
        " can see the write.",
        "One more output of the graph and one copy of the whole tensor on every call. The finding is a"
        " warning from 1 MiB on, information below.",
        "Return the new value and let the caller bind it. Buffers, and writes under `torch.no_grad()`,"
        " are not reported: they stay inside the graph.",
        "def step(state, x):\n    state.mul_(0.9)\n    return state + x",
        "def step(state, x):\n    state = state * 0.9\n    return state, state + x",
    ),
    Rule(
        "AL102",
        "A change is hidden from autograd",
        "warning",
        "A tensor that needs a gradient is written through `.data`. Autograd does not learn of it: no"
        " gradient flows through the write, and the version counter that guards saved values is not"
        " raised.",
        "Gradients may be wrong without an error, in eager as well as compiled.",
        "Write under `torch.no_grad()`: it is not recorded either, but autograd then refuses to use a"
        " saved value that was overwritten.",
        "def clamp_weight(weight):\n    weight.data.clamp_(-1, 1)",
        "def clamp_weight(weight):\n    with torch.no_grad():\n        weight.clamp_(-1, 1)",
    ),
    Rule(
        "AL103",
        "An argument's shape or strides are changed in place",
        "warning",
        "A function such as `t_()`, `unsqueeze_()` or `transpose_()` changes how the caller's tensor"
        " object is read, not its values.",
        "The wrapper sets the new shape on the caller's object on every call, outside of the graph. A"
        " second call with the same object has another shape and is compiled again.",
        "Use the form without the underscore and return the view.",
        "def flip(x):\n    x.t_()\n    return x * 2",
        "def flip(x):\n    return x.t() * 2",
    ),
    Rule(
        "AL104",
        "An argument's storage is replaced",
        "warning",
        "`set_()`, an assignment to `.data`, or a resize gives the caller's tensor object other memory.",
        "The wrapper repeats it on every call. Views that the caller took before keep the old memory.",
        "Copy into the existing memory with `copy_()`, or return the new tensor.",
        "def refill(buffer, x):\n    buffer.data = x * 2",
        "def refill(buffer, x):\n    buffer.copy_(x * 2)",
    ),
    Rule(
        "AL105",
        "A buffer collects autograd history",
        "warning",
        "A buffer is updated in place with a value that carries a gradient, so the buffer becomes part"
        " of the graph, and after the next call part of the next one.",
        "Every call keeps the graphs of the calls before it, or the second backward fails. The wrapper"
        " also copies the buffer on every call.",
        "Update it under `torch.no_grad()`, or from a detached value. Running statistics of batch norm"
        " are not reported: they carry no gradient.",
        "def forward(self, x):\n    self.ema.mul_(0.9).add_(x.mean(0))\n    return x - self.ema",
        "def forward(self, x):\n    with torch.no_grad():\n        self.ema.mul_(0.9).add_(x.mean(0))\n"
        "    return x - self.ema",
    ),
)

ALIASING = (
    Rule(
        "AL201",
        "The same tensor is passed twice and changed",
        "warning",
        "Two arguments are one tensor object, and the function writes to it: the write through one name"
        " shows under the other.",
        "The graph is valid only for calls that pass the same tensor in both places; any other call is"
        " compiled again.",
        "Pass it once, or pass a clone where two values are meant.",
        "def mix(a, b):\n    a.add_(1)\n    return a * b\n\n\nmix(x, x)",
        "mix(x, x.clone())",
    ),
    Rule(
        "AL202",
        "Arguments share memory and one is changed",
        "warning",
        "Two arguments are views of one storage, and the function writes to one of them. The compiled"
        " function must take their common base and make both views again, or the other would not show"
        " the write.",
        "The views are made again on every call, and the graph is valid only for arguments that overlap"
        " in the same way.",
        "Pass the base and take the views inside, or clone the one that is only read.",
        "def shift(a, b):\n    a.add_(1)\n    return b * 2\n\n\nshift(x[:4], x[2:])",
        "def shift(x):\n    x[:4].add_(1)\n    return x[2:] * 2",
    ),
    Rule(
        "AL203",
        "Many outputs are views that are made again on each call",
        "information",
        "A graph returns memory of its own; an output that is a view of an argument or of an"
        " intermediate value is made again after the graph, so that later in-place changes behave as in"
        " eager.",
        "Some microseconds of Python for each view on every call, which counts when the graph itself is"
        " short.",
        "Return the base and let the caller take the views, or return `.clone()` where no memory need be"
        " shared.",
        "def heads(x):\n    return [x[:, i] for i in range(16)]",
        "def heads(x):\n    return x",
    ),
)

TRACING = (
    Rule(
        "AL401",
        "The program depends on a tensor's values",
        "error",
        "An `if`, a loop, `.item()` or a size depends on values that are known only when the program"
        " runs. A graph that is made ahead of time holds one path.",
        "The function cannot be captured whole.",
        "Compute both sides and choose with `torch.where`, or keep that line outside of the compiled"
        " function.",
        "def relu(x):\n    return x if x.sum() > 0 else x * 0",
        "def relu(x):\n    return torch.where(x.sum() > 0, x, x * 0)",
    ),
    Rule(
        "AL402",
        "A case that is not supported",
        "error",
        "The engine knows this case and refuses it, because a wrong result would be worse than none.",
        "The target is not compiled.",
        "The message names the case, your line and the way around it. `torch.compile` with another"
        " backend is not affected.",
        "mix(nested_tensor)",
    ),
    Rule(
        "AL403",
        "The script asks for a GPU that is not there",
        "error",
        "The script puts something on a CUDA device, and this machine has none.",
        "Nothing after that line is traced.",
        "Name a GPU with `--gpu`: the script is traced as if it were there. Or let the script choose:"
        " `device = 'cuda' if torch.cuda.is_available() else 'cpu'`.",
        "model.cuda()",
    ),
    Rule(
        "AL404",
        "The script needs a value that a fake tensor does not have",
        "error",
        "Under `--fake` tensors have sizes and types and no values; this line reads one. Where targets were"
        " captured before it, the finding is information only.",
        "What the script does after that line is not traced.",
        "Leave `--fake` out, or guard the line; print sizes instead of values.",
        "print(loss.item())",
    ),
    Rule(
        "AL405",
        "Code passed to torch.compile runs in eager",
        "warning",
        "Dynamo captures nothing of the function, or nothing from this line on: it meets something that it"
        " cannot trace and cannot resume after, such as `nn.LSTM`. The same code is used for a function that"
        " was never called, that holds no tensor operation, that was recompiled too often, or for which the"
        " script chose another backend.",
        "That code runs in eager, and no graph of it is shown.",
        "The message has Dynamo's own hint. Compile the parts around what it cannot trace; or leave"
        " `torch.compile` off and name the function (`aotlens inspect SCRIPT::name`): it is then recorded"
        " without Dynamo.",
        "lstm = nn.LSTM(32, 64)\n\n@torch.compile\ndef run(xs):\n    return lstm(xs)[0].sum()",
        "torch._dynamo.config.allow_rnn = True",
    ),
    Rule(
        "AL406",
        "A graph break",
        "warning",
        "Dynamo cannot trace this expression: it splits the function, and the expression runs in eager"
        " between two graphs. It is a warning where 1 MiB or more crosses the break on each call.",
        "Nothing is fused across the break, each part is guarded and called by itself, and tensors that both"
        " parts need are written to memory and read again.",
        "The message has a hint, torch's number for the break, and the library's line where one stops Dynamo."
        " Move the expression out of the compiled function where you can.",
        "y = layer(x)\nprint(y.mean())\nreturn head(y)",
        "y = layer(x)\nreturn head(y)",
    ),
    *DYNAMO,
    *RANKS,
)

WRAPPER = (
    Rule(
        "AL501",
        "The wrapper copies much on each call",
        "warning",
        "Work outside of the graphs moves at least 16 MiB on every call, for example to write changed"
        " buffers or a cache back.",
        "The copied bytes, twice through memory, on every call; nothing can be fused with it.",
        "Change a slice in place (`cache[:, pos] = new`) under `torch.no_grad()`, so that the write"
        " stays in the graph, or return the new value.",
        "def step(cache, x):\n    cache.copy_(torch.roll(cache, 1, 0))\n    return cache @ x",
    ),
)

CORRECTNESS = (
    Rule(
        "AL701",
        "Compiled and eager differ",
        "error",
        "`aotlens verify`, or `run --verify`, found a value, gradient, changed argument or shared memory"
        " that differs from eager beyond the stated tolerance.",
        "Results cannot be trusted.",
        "The message names the first thing that differs, and the node that computes it. Please report"
        " it: unless the code draws random numbers from outside of torch, it is a bug of the compiler.",
        "$ aotlens verify model.py::Model",
    ),
    Rule(
        "AL702",
        "The backward fails, in eager too",
        "warning",
        "Autograd refuses to compute the gradient of this expression: a value that it needs is written to"
        " afterwards, or the operator has no derivative. The forward runs, compiled as in eager; the backward"
        " raises the same error in both.",
        "No gradients. A function that is never differentiated loses nothing.",
        "Write the new value to another tensor, or compute what the gradient needs from a clone that is made"
        " before the write.",
        "def step(x, y):\n    z = (x + y).relu_()\n    z.mul_(2)\n    return z",
        "def step(x, y):\n    return (x + y).relu() * 2",
    ),
    Rule(
        "AL703",
        "Not verified",
        "warning",
        "`aotlens verify`, or `run --verify`, could not compare all of this target with eager: it was"
        " compiled but not called, eager raises on the arguments or in the backward, two runs of eager"
        " differ, or the comparison itself failed. The message states which.",
        "Nothing is known about the results. The command exits with 1; `--allow-unverified` lets it pass.",
        "Call the target in the script with arguments that eager accepts, or write an example above it. A"
        " function that depends on time, files or global state is comparable once these are arguments.",
        "import time\n\n@torch.compile\ndef step(x):\n    return x * time.time()",
        "@torch.compile\ndef step(x, now):\n    return x * now",
    ),
)

FAILURES = (
    Rule(
        "AL901",
        "The script does not parse",
        "error",
        "Python cannot read the file.",
        "Nothing is traced; results shown are those of the last version that parsed.",
        "Correct the line that is named.",
        "def f(x:\n    return x",
    ),
    Rule(
        "AL902",
        "Your code raised an error",
        "error",
        "The script, or the function while it was traced, raised. The traceback holds your own frames only.",
        "Nothing after that line is traced.",
        "Run the script with `python`: it fails in the same way. An error that comes only under aotlens"
        " is a bug.",
        "x @ torch.ones(3, 5)  # x is 8 by 4",
    ),
    Rule(
        "AL903",
        "The script ended before a target was called",
        "error",
        "The script called `sys.exit` or `os._exit`.",
        "Targets after that line are not traced.",
        "Give the arguments that the script needs, or name a target with an example: `SCRIPT::name`.",
        "if len(sys.argv) < 2:\n    sys.exit(2)",
    ),
    Rule(
        "AL904",
        "No such file",
        "error",
        "The path does not name a file that can be read.",
        "Nothing is traced.",
        "Check the path; it is taken from the current folder.",
        "$ aotlens inspect modle.py",
    ),
    Rule(
        "AL905",
        "No target found",
        "error",
        "The script passed nothing to `torch.compile` and has no `@aotlens.compile`, or the name after"
        " `::` is no function, method or module class of it.",
        "Nothing is traced.",
        "Name one with `SCRIPT::name`, and give its arguments with an example comment above it.",
        "$ aotlens inspect model.py",
        "$ aotlens inspect model.py::Model.forward",
    ),
    Rule(
        "AL906",
        "The example arguments do not fit",
        "error",
        "An example comment or decorator does not follow the short form, or does not fit the function's"
        " parameters.",
        "The target is not traced.",
        "Write one item a parameter: `dtype[sizes]`, optionally `[strides]`, a device and `grad`, or a"
        " Python literal.",
        "# aotlens: example float[8, 16]",
        "# aotlens: example f32[8, 16] grad, 3",
    ),
    Rule(
        "AL907",
        "Tracing took too long",
        "error",
        "The script or the trace did not end within the time limit and was stopped.",
        "Nothing is shown for it.",
        "Name one target with an example (`SCRIPT::name`), so that the script's own work is skipped, or"
        " raise the limit.",
        "while True:\n    train()",
    ),
    Rule(
        "AL908",
        "Tracing needed too much memory",
        "error",
        "The child process that traces went over its memory limit.",
        "Nothing is shown for it.",
        "Name one target with an example (`SCRIPT::name`): its arguments then hold no memory. Or raise"
        " the limit.",
        "data = torch.ones(1 << 40)",
    ),
    Rule(
        "AL909",
        "The process that traced has crashed",
        "error",
        "A signal ended the process: native code failed in the script or below it, or it was killed.",
        "Nothing is shown for it.",
        "Run the script with `python -X faulthandler` to see where.",
        "ctypes.string_at(0)",
    ),
    Rule(
        "AL910",
        "The trace was cancelled",
        "hint",
        "A newer edit, or you, stopped it.",
        "What is shown belongs to the version before.",
        "Trace again.",
        "",
    ),
    Rule(
        "AL911",
        "An error inside of aotlens",
        "error",
        "A promise between two parts of aotlens was broken. It is not your code's fault.",
        "The target is not compiled.",
        "Please report it with the message and, if you can, the function.",
        "",
    ),
    Rule(
        "AL912",
        "The code generator failed on a graph",
        "error",
        "Inductor, or the backend that was chosen, raised an error while it compiled the graph or its"
        " backward.",
        "The graph runs in eager; with `--strict` the script ends here.",
        "The message has the backend's own words. `--backend eager` runs the graph without generated code.",
        "",
    ),
)

RULES = (
    *MUTATION,
    *ALIASING,
    *SAVED,
    *TRACING,
    *WRAPPER,
    *CUDA_GRAPHS,
    *GPU,
    *CORRECTNESS,
    *BUDGETS,
    *FAILURES,
)
"""Every rule, by code."""
