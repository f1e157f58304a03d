"""The language server: the compiler's decisions at the expression, in any editor.

Invariant: nothing in this package imports torch or the engine, and no handler runs user code or waits
for it.  Tracing is done by the worker's child; what is shown comes from the report that it sent.
"""
