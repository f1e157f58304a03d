"""The rows of family AL4 about what Dynamo compiles more than once, builds in or skips."""

from aotlens.report.rule import Rule

DYNAMO = (
    Rule(
        "AL407",
        "A value that recompiles the function",
        "warning",
        "Dynamo compiled the function for one value, a guard checks that value on each call, and calls with"
        " another value compile the function again. The second size of a dimension and the second value of a"
        " number are no finding: Dynamo then makes them symbols.",
        "The time of each recompilation. After eight of them (`torch._dynamo.config.recompile_limit`) calls"
        " that need another graph run in eager.",
        "The message names the value as you write it, with the old and the new value, and what to do:"
        " a counter belongs into a buffer, a number that changes into a 0-d tensor, a size is announced with"
        " `torch._dynamo.mark_dynamic`.",
        "class Net(nn.Module):\n    step = 0\n\n    def forward(self, x):\n        self.step += 1\n"
        "        return x / self.step",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        '        self.register_buffer("step", torch.zeros(()))\n\n    def forward(self, x):\n'
        "        self.step.add_(1)\n        return x / self.step",
    ),
    Rule(
        "AL408",
        "A symbolic size that became a constant",
        "information",
        "The size was a symbol, so that one compilation serves many sizes, until this expression asked"
        " whether it has a certain value. From here on it is that constant.",
        "Calls with another size compile the function again.",
        "Ask for a range (`x.shape[0] >= 2`), or move the test out of the compiled function. Other sizes may"
        " still vary.",
        "@torch.compile(dynamic=True)\ndef pad(x):\n    if x.shape[0] == 5:\n        return x\n"
        "    return torch.cat([x, x])",
    ),
    Rule(
        "AL409",
        "A function that Dynamo skips",
        "warning",
        "Dynamo looked at the function and left it to Python, without a graph break to say so: tracing is"
        " switched off for it, a dispatch mode is active, or its file is on Dynamo's list of code to skip.",
        "Everything in it runs in eager.",
        "The message has the reason. Functions without any tensor are skipped too, and are no finding.",
        "with MyDispatchMode():\n    compiled(x)",
        "compiled(x)",
    ),
)
