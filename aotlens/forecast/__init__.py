"""Forecast the effect of other arguments on a compiled function, with calls of varied copies under Dynamo.

| module | what it does |
|---|---|
| `vary` | parses `--vary x.shape[0]=1,8,9` |
| `recorded_call` | a call of a compiled function: the names of its values, and copies with other ones |
| `axes` | what may vary in a recorded call, and the values to try |
| `state_snapshot` | state besides tensors that calls change, restored between them |
| `fork` | work in a copy of the process |
| `trial` | makes a series of calls in such a copy, and counts compilations and failed guards |
| `forecast` | one recorded call: its axes, their trials, the change that helps |
| `probe` | runs a script to the first call of everything that it compiles |

Invariant: the guards are Dynamo's own, created and checked by calls of the function; the backend is `eager`,
which runs Dynamo's graph unchanged.
"""
