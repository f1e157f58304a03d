"""The list of where the analysis and torch's own disagree; `judges/agreement.py` compares them."""

from tests.engine.peer_disagreements import DISAGREEMENTS
from tests.programs import PROGRAMS


def test_every_listed_name_is_a_program() -> None:
    names = {program.name for program in PROGRAMS}
    patterns = [pattern for row in DISAGREEMENTS for pattern in row.programs if "*" not in pattern]
    assert [pattern for pattern in patterns if pattern not in names] == []
