"""The language server: the compiler's decisions at the expression, in any editor.

Invariant: nothing in this package imports torch or the engine, and no handler runs user code or waits for it.
The worker's child process traces; the server shows the report that it sends.
"""
