"""Why two kernels that share a value are two: the closed list of reasons, in the user's words.

Invariant: standard library only; `aotlens.codegen.gpu.refusals` finds the reason for what torch says.
"""

from aotlens.report.kernel_records import UnfusedCode

REASONS: dict[UnfusedCode, str] = {
    "library": "one of them is a library call, which takes no other work in",
    "order": "a third kernel runs between them: it needs the first, and the second needs it",
    "indexing": "they go over it in different orders, or over different parts of it",
    "little": "what they share is too little to be worth it",
    "sizes": "their loops have different sizes",
    "tiling": "they cut their loops into blocks in different ways",
    "steps": "one reduction in two steps: the second starts when the first has finished everywhere",
    "scan": "a scan that is split over blocks takes no reduction in",
    "limit": "one kernel of both would be larger than Inductor makes them",
    "memory": "one kernel of both would keep more values alive at once, far from where they are used",
    "template": "the template of a matrix product or of attention does not take this in",
    "user-kernel": "one of them is your own Triton kernel, which does not take this in",
    "foreach": "lists of tensors that are computed together must match one by one",
    "spills": "one kernel of both would spill registers",
    "device": "they run on different devices",
    "disabled": "fusion is turned off here",
    "other": "Inductor's scheduler decides so",
}
