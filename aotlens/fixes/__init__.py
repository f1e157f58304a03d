"""Edits of the user's source against graph breaks and recompilations, and the search for those that work.

Standard library and the report's records only; `aotlens.session.trials.fix_trials` runs scripts in children.

| record | what it is |
|---|---|
| `report.source_records.Edit` | a span, and the text that replaces it |
| `candidates.Target` | a graph break or a value that recompiles, by names that survive an edit elsewhere |
| `candidates.Candidate` | one way to remove a target: a kind, a sentence, edits |
| `candidates.Alternatives` | the ways for one target, the best first |
| `search.Attempt` | what a run of an edited copy did, and how it differs from eager |
| `report.dynamo_records.TriedFix` | a candidate with its outcome, or why it is rejected |

A candidate passes if the edited copy does what the script does in eager, its target is gone, and less is
lost than before.  What a run did not exercise is not verified: the side of a branch that is never taken, say.
"""
