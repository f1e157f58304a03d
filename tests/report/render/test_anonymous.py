"""Names and paths leave a report and the program beside it, and what remains still reads."""

from dataclasses import fields, is_dataclass
from pathlib import Path

from aotlens.model.codec import dumps
from aotlens.model.report import Report
from aotlens.render.anonymous import Anonymiser, names_in
from tests.report.sample import MODEL, sample_report

SOURCE = '''\
"""Prices of customers."""
import torch

SECRET = "the price of pears"


# how we weigh pears
class PearScale(torch.nn.Module):
    def forward(self, pears, reduction="none"):
        hidden = torch.relu(pears)
        raise ValueError("the price of pears")
'''


def test_a_program_keeps_what_torch_and_python_call_so() -> None:
    hidden = Anonymiser({"/home/ada/scales/pear.py": SOURCE}, ["torch", "forward", "reduction", "relu"])
    assert hidden.program(SOURCE) == (
        '""\n'
        "import torch\n"
        "\n"
        'name1 = ""\n'
        "\n"
        "\n"
        "\n"
        "class name2(torch.nn.Module):\n"
        '    def forward(self, name5, reduction="none"):\n'
        "        name6 = torch.relu(name5)\n"
        '        raise ValueError("")\n'
    )


def test_messages_use_the_same_names() -> None:
    people = {"ada": "user", "/home/ada": "~"}
    hidden = Anonymiser({"/home/ada/scales/pear.py": SOURCE}, ["torch", "nn", "relu"], people)
    message = (
        'File "/home/ada/scales/pear.py", line 9, in forward (PearScale of scales/pear.py): ValueError:'
        " the price of pears; tangent_hidden of aten.relu.default, seen by ada in /srv/models/pears and"
        " /opt/lib/python3.11/site-packages/torch/nn/modules/module.py"
    )
    assert hidden.text(message) == (
        'File "file1.py", line 9, in forward (name2 of file1.py): ValueError: …; tangent_name6 of'
        " aten.relu.default, seen by user in <path> and <site-packages>/torch/nn/modules/module.py"
    )


def test_a_report_is_still_one_and_holds_no_name() -> None:
    source = MODEL if isinstance(MODEL, str) else str(MODEL)
    text = Path(source).read_text()
    hidden = Anonymiser({source: text}, ["torch", "nn"]).report(sample_report())
    assert isinstance(hidden, Report)
    assert _shape(hidden) == _shape(sample_report())
    left = [name for name in ("Block", "down", "residual", "sample_model") if name in dumps(hidden)]
    assert left == []


def _shape(value: object) -> object:
    """What a report is made of, with every text and place in it left out."""
    if is_dataclass(value):
        return {entry.name: _shape(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, tuple):
        return tuple(_shape(entry) for entry in value)
    return type(value) if isinstance(value, str) else value


def test_a_file_that_does_not_parse_has_no_names() -> None:
    assert list(names_in("def (:\n  '''")) in ([], ["def"])
    assert Anonymiser({"broken.py": "def (:\n  '''"}, []).text("broken.py:1") == "file1.py:1"
