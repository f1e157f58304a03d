"""Edits of a training script that lower its peak, each tested on copies of the script.

The parent loads no torch. Scripts run in forks of one child process, `server`.

| module | contents |
|---|---|
| `proposals` | the records of an edit and of what the rules read |
| `step` | the training step in the source: forward, backward, the batch's names |
| `edits` | a package with one kind of edit in each module |
| `rules` | all kinds, the cheapest first |
| `trials`, `server`, `training`, `names` | runs of edited copies: peak, comparison, names at the backward |
| `comparison` | whether the training with an edit is the training without it |
| `search`, `search_state` | tests the proposals, and what was tested |
| `target`, `combination` | the limit, and the cheapest edits that reach it |
"""
