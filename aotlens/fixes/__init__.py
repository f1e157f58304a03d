"""Edits of the user's source that remove graph breaks and recompilations, and the search for those that work.

Standard library and the report's records only; `aotlens.session.trials.fix_trials` runs scripts in children.

| record | meaning |
|---|---|
| `model.source.Edit` | a span, and the text that replaces it |
| `candidates.Target` | a graph break or a value that recompiles, by names that survive an edit elsewhere |
| `candidates.Candidate` | one way to remove a target: a kind, a sentence, edits |
| `candidates.Alternatives` | the ways for one target, the best first |
| `search.Attempt` | the result of running an edited copy, and how it differs from eager |
| `model.dynamo.TriedFix` | a candidate with its outcome, or why it is rejected |

A candidate passes if the edited copy behaves like the script in eager, its target is gone, and graph breaks
and recompilations are fewer than before.  Code that the run did not execute is not verified, for example the
other side of a branch.
"""
