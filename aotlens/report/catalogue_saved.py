"""The rows of the catalogue about what is kept for the backward: the family AL3."""

from aotlens.report.rule import Rule

SAVED = (
    Rule(
        "AL301",
        "A large activation is kept for the backward",
        "information",
        "The value is computed in the forward and read in the backward, so it stays in memory in"
        " between. The three largest are reported when they hold at least 8 MiB and a tenth of all saved"
        " bytes.",
        "Its bytes, from the forward until the backward has read it; for a loop over layers, once for"
        " each layer.",
        "Wrap the block that makes and uses it in `torch.utils.checkpoint.checkpoint(block, x,"
        " use_reentrant=False)`: the backward then computes it again. Where a call of your code would take"
        " a tenth off the peak, the finding names it, says what would be saved then, and offers the edit."
        " A smaller batch or `bfloat16` autocast shrinks the value.",
        "for block in self.blocks:\n    x = block(x)",
        "for block in self.blocks:\n    x = checkpoint(block, x, use_reentrant=False)",
    ),
    Rule(
        "AL302",
        "A precision that doubles what is kept",
        "information",
        "A value is kept for the backward in a wider type than what it was computed from: a `float32` copy"
        " of a `bfloat16` value under autocast, both precisions of one value, or `float64` that came in"
        " with a constant, a NumPy array or a small argument. Reported from 1 MiB and a fiftieth of all"
        " saved bytes on.",
        "Twice the bytes (`float32` beside `bfloat16`, `float64` beside `float32`) until the backward.",
        "Cast later, so that the narrow value is what is kept; give constants the type of the data; use the"
        " fused form (`scaled_dot_product_attention`, `rms_norm`) that widens only inside.",
        'weight = torch.ones(512)  # float32\nwith torch.autocast("cuda", torch.bfloat16):\n'
        "    y = (self.up(x) * weight).sigmoid()",
        "y = (self.up(x) * weight.to(torch.bfloat16)).sigmoid()",
    ),
    Rule(
        "AL303",
        "A mask is kept as numbers",
        "information",
        "A value that holds two different numbers only (a comparison cast to float, a one-hot matrix, drawn"
        " integers of 0 and 1) is kept for the backward in a type wider than a byte. Masks that dropout or"
        " `torch.bernoulli` draw are not told: `min-cut` keeps them as booleans. Reported from 1 MiB and a"
        " fiftieth of all saved bytes on.",
        "Four bytes (`float32`) where a boolean takes one.",
        "Keep the comparison's boolean result and multiply by it, or choose with `torch.where`: both take a"
        " boolean mask.",
        "mask = torch.randint(0, 2, x.shape).float()\ny = x.exp() * mask",
        "mask = torch.randint(0, 2, x.shape).bool()\ny = x.exp() * mask",
    ),
    Rule(
        "AL304",
        "A value is kept that no gradient depends on",
        "warning",
        "The backward reads the value, but whatever it holds, the gradients are the same: it is multiplied"
        " by zero, raised to the power zero, or only asked for its sizes. `aotlens inspect --dead-values`"
        " also finds what only numbers tell: it runs the backward graph on random values and changes one"
        " saved value at a time.",
        "Its bytes, and the work that makes it, for nothing.",
        "Drop the term that has no effect, or take the value from `.detach()`; in a custom"
        " `autograd.Function` save the sizes instead of the tensor.",
        "class Scale(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        ctx.save_for_backward(x.exp())\n        return x * 2\n\n    @staticmethod\n"
        "    def backward(ctx, grad):\n        (y,) = ctx.saved_tensors\n        return grad * 2 + 0 * y",
        "class Scale(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        return x * 2\n\n    @staticmethod\n    def backward(ctx, grad):\n        return grad * 2",
    ),
    Rule(
        "AL305",
        "An activation checkpoint is not followed",
        "information",
        "A value inside of an activation checkpoint is kept all the same, or one that its policy keeps is"
        " computed again. The finding says why: a second draw of random numbers would differ, what it does"
        " is done once, what it is computed from has changed, or another rule comes first. Reported from"
        " 1 MiB and a fiftieth of all saved bytes on.",
        "The bytes that the checkpoint was to spare, or the work that its policy was to spare.",
        "Move the random or changing operation out of the checkpointed function, or accept it: a mask is a"
        " quarter of what it masks.",
        "def block(x):\n    return torch.randn_like(x) * x.exp()\n\n\n"
        "checkpoint(block, x, use_reentrant=False)",
    ),
    Rule(
        "AL306",
        "A memory budget raises the peak",
        "warning",
        "With the budget less is saved for the backward, but the predicted peak of forward and backward is"
        " higher than with a larger budget, or without one: what the backward computes again needs more at"
        " once. Budgets of 1.25, 1.5, 2 and 3 times what was asked are compared.",
        "More memory and more work than with more saved.",
        "Choose a larger budget; the frontier in the report lists what each one costs. A checkpoint around"
        " each layer spares memory at the peak as well.",
        "$ aotlens inspect model.py --memory-budget 0.1",
        "$ aotlens inspect model.py --memory-budget 0.5",
    ),
)
