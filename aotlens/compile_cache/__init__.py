"""The on-disk cache of compiled results: a cache hit skips the stages that produced the result.

Invariant: a key covers everything on which a result depends: the captured graph, the metadata of its inputs,
every setting that a stage reads, and the versions. A result with a dependency that has no complete text is
not cached, and the report says why.
"""
