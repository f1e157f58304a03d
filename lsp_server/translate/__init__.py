"""From report records to protocol types, one module per feature.

Invariant: all knowledge of both sides is in this package; handlers see neither.
"""
