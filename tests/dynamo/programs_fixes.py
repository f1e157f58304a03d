"""One script per kind of fix, and scripts whose edits must be rejected."""

HEAD = """\
import torch
from torch import nn


"""
COMPILED = """\
@torch.compile(backend="eager")
"""
X = "x = torch.arange(1.0, 5.0)\n"


def script(body: str, *calls: str, imports: str = "") -> str:
    """A script with one compiled function `f`, and calls whose results are printed."""
    printed = "".join(f"print({call})\n" for call in calls)
    return f"{imports}{HEAD}{COMPILED}{body}\n\n{X}{printed}"


PASSING: dict[str, str] = {
    "branch_assigns": script(
        """\
def f(x):
    y = x.sin()
    if x.sum() > 5:  # large
        # halve it
        y = y / 2
    return y.cos()
""",
        "f(x)",
        "f(-x)",
    ),
    "branch_of_two_sides": script(
        """\
def f(x, y):
    if not (x > 0).all():
        x, scale = x, 2
        y = y + 1
        x = x * 2
    else:
        y = y - 1
    return x + y
""".replace("        x, scale = x, 2\n", ""),
        "f(x, x)",
        "f(-x, x)",
    ),
    "branch_returns": script(
        """\
def f(x):
    if x.mean() > 1 and x[0] > 0:
        return x * 2
    return x.sin()
""",
        "f(x)",
        "f(-x)",
    ),
    "conditional_expression": script(
        """\
def f(x):
    return (x * 2 if bool(x.sum() > 0) else x).sin()
""",
        "f(x)",
        "f(-x)",
    ),
    "branch_in_loop": script(
        """\
def f(x):
    for _ in range(2):
        if x.sum() > 3:
            x = x * 0.5
    return x + 1
""",
        "f(x)",
        "f(-x)",
    ),
    "item": script("def f(x):\n    return x * x.sum().item()\n", "f(x)", "f(x + 1)"),
    "item_in_branch": script(
        """\
def f(x):
    total = x.sum().item()
    if total > 5:
        x = x / total
    return x.sin()
""",
        "f(x)",
        "f(-x)",
    ),
    "item_in_condition": script(
        """\
def f(x):
    if x.sum().item() > 5:
        x = x / 2
    return x.sin()
""",
        "f(x)",
        "f(-x)",
    ),
    "float_and_int": script("def f(x):\n    return x * float(x[0]) + int(x[1])\n", "f(x)", "f(x + 1)"),
    "item_as_size": script("def f(x):\n    return x + torch.arange(int(x[3])).sum()\n", "f(x)", "f(x + 1)"),
    "tolist": script("def f(x):\n    for v in x.tolist():\n        x = x + v\n    return x\n", "f(x)"),
    "tensor_as_condition": script(
        """\
def f(x, is_large):
    y = x.sin()
    if is_large:
        y = y / 2
    return y.cos()
""",
        "f(x, x.sum() > 5)",
        "f(x, x.sum() > 50)",
    ),
    "tolist_in_branch": script(
        """\
def f(x):
    first, second = x[:2].tolist()
    if first > second:
        x = x / 2
    return x.sin()
""",
        "f(x)",
        "f(-x)",
    ),
    "operator_in_try": script(
        """\
def f(x):
    try:
        y = torch.masked_select(x, x > 2)
    except RuntimeError:
        y = x
    return y + 1
""",
        "f(x)",
        "f(-x)",
    ),
    "item_in_try": script(
        """\
def f(x):
    try:
        scale = x.sum().item()
        x = x / scale
    except ZeroDivisionError:
        x = x + 1
    return x.sin()
""",
        "f(x)",
        "f(-x)",
    ),
    "print": script('def f(x):\n    y = x.sin()\n    print("sum:", y.sum())\n    return y.cos()\n', "f(x)"),
    "print_shape": script(
        'def f(x):\n    y = x.sin()\n    print("sum:", y.shape)\n    return y.cos()\n', "f(x)"
    ),
    "logging": script(
        """\
def f(x):
    y = x.sin()
    log.info(
        "shape %s", y.shape
    )  # twice a day
    return y.cos()
""",
        "f(x)",
        imports="import logging\n\n",
    ).replace("from torch import nn\n", 'from torch import nn\n\nlog = logging.getLogger("here")\n'),
    "warning": script(
        'def f(x):\n    warnings.warn("odd", stacklevel=1)\n    return x.cos()\n',
        "f(x)",
        imports="import warnings\n",
    ),
    "time_unread": script(
        """\
def f(x):
    begin = time.perf_counter()
    y = x.sin()
    spent = time.perf_counter() - begin
    return y.cos()
""",
        "f(x)",
        imports="import time\n",
    ),
    "print_in_try": script(
        """\
def f(x):
    try:
        print("inside")
        x = x.sin()
    except ValueError:
        x = x + 1
    return x + 2
""",
        "f(x)",
    ),
    "constant_of_numpy": script(
        "def f(x):\n    return x + np.interp(0.5, [0, 1], [1, 2])\n", "f(x)", imports="import numpy as np\n"
    ),
    "norm_of_numpy": script(
        "def f(x):\n    return x / float(np.linalg.norm(x.numpy()))\n", "f(x)", imports="import numpy as np\n"
    ),
    "sorted": script("def f(x):\n    return x + sorted(x)[0]\n", "f(x)", "f(-x)"),
    "square_root": script("def f(x):\n    return x / math.sqrt(x.sum())\n", "f(x)", imports="import math\n"),
    "selection": script("def f(x):\n    return x[x > 2].sum() + 1\n", "f(x)", "f(-x)"),
    "graph_break": script(
        "def f(x):\n    y = x.sin()\n    torch._dynamo.graph_break()\n    return y.cos()\n", "f(x)"
    ),
    "deepcopy": script("def f(x):\n    return copy.deepcopy(x) + x\n", "f(x)", imports="import copy\n"),
    "generator": f"""\
{HEAD}@torch.compile(backend="eager")
def halves(x):
    for _ in range(3):
        x = x / 2
        yield x


def total(x):
    return sum(halves(x))


print(total(torch.ones(4)))
""",
    "two_rounds": script(
        """\
def f(x):
    for _ in range(2):
        if x.sum() > 3:
            x = x * 0.5
        print("step")
    return x + 1
""",
        "f(x)",
    ),
    "counter": f"""\
{HEAD}class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.step: int = 0  # calls so far

    def forward(self, x):
        self.step += 1
        return x / self.step


block = torch.compile(Block(), backend="eager")
for _ in range(4):
    print(block(torch.ones(2)))
""",
    "counter_printed_outside": f"""\
{HEAD}class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        self.step += 1
        return x / self.step


block = Block()
compiled = torch.compile(block, backend="eager")
for _ in range(4):
    print(compiled(torch.ones(2)), block.step)
""",
    "attribute": f"""\
{HEAD}class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 1.5

    def forward(self, x):
        return x * self.scale


model = Scaled()
compiled = torch.compile(model, backend="eager")
for step in range(4):
    model.scale = 1.5 + step
    print(compiled(torch.ones(2)))
""",
    "number": script("def f(x, k):\n    return x * k\n", "f(x, 0.5)", "f(x, 0.25)", "f(x, k=2.0)"),
    "learning_rate": """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.compile(backend="eager")
def step():
    optimizer.step()


for index in range(4):
    loss = model(torch.ones(2, 4)).square().sum()
    loss.backward()
    step()
    optimizer.zero_grad()
    for group in optimizer.param_groups:
        group["lr"] = 0.1 / (index + 2)
    print(f"{loss.item():.4f}")
""",
    "sizes_marked": f"""\
{HEAD}@torch.compile(backend="eager")
def f(x):
    return x + 1


for size in (3, 4, 5):
    x = torch.ones(size)
    print(f(x))
""",
    "sizes_dynamic": f"""\
{HEAD}model = nn.Linear(4, 2)
compiled = torch.compile(model, backend="eager", dynamic=False)
for size in (3, 4, 5):
    print(compiled(torch.ones(size, 4)).shape)
""",
    "none": script(
        "def f(x, mask=None):\n    y = x if mask is None else x * mask\n    return y.sin()\n",
        "f(x)",
        "f(x, mask=x.cos())",
        "f(x, None)",
    ),
    "growing_list": f"""\
{HEAD}@torch.compile(backend="eager")
def f(x, cache):
    return x + torch.stack(cache, 0).sum()


x = torch.ones(4)
cache = [x]
for _ in range(4):
    print(f(x, cache))
    cache.append(x)
""",
    "growing_cache": f"""\
{HEAD}@torch.compile(backend="eager", dynamic=False)
def attend(query, keys):
    return torch.softmax(query @ keys.T, -1) @ keys


keys = torch.ones(2, 4)
for _ in range(4):
    output = attend(torch.ones(1, 4), keys)
    keys = torch.cat([keys, output])
    print(output)
""",
    "gradient_of_the_other_side": f"""\
{HEAD}{COMPILED}def f(x):
    y = x.sum()
    if y > 5:
        y = torch.sqrt(y - 5)
    return y * 2


x = torch.ones(5, requires_grad=True)
f(x).backward()
print(x.grad)
x = torch.full((5,), 2.0, requires_grad=True)
f(x).backward()
print(x.grad)
""",
    "floor": script(
        "def f(x):\n    return x + math.floor(x.max())\n",
        "f(x / 2)",
        "f(x.to(torch.int64))",
        imports="import math\n",
    ),
}
"""At least one edit passes."""

REJECTED: dict[str, str] = {
    "sides_of_unlike_shape": script(
        "def f(x):\n    if x.sum() > 5:\n        x = x[:1]\n    return x + 1\n", "f(x)", "f(-x)"
    ),
    "side_of_another_dtype": script(
        "def f(x):\n    if x.sum() > 5:\n        x = x.double()\n    return x + 1\n", "f(x)", "f(-x)"
    ),
    "number_is_returned": script("def f(x):\n    return x.sin(), x.sum().tolist()\n", "f(x)"),
    "time_is_printed": script(
        "def f(x):\n    begin = time.time()\n    return x.sin(), time.time() - begin > 1e9 or begin\n",
        "f(x)",
        imports="import time\n",
    ),
    "write_to_an_argument": script(
        "def f(x):\n    if x.sum() > 5:\n        x *= 0.5\n    return x + 1\n", "f(x)", "f(-x)", "x"
    ),
}
"""No edit keeps the results, or none compiles less."""
