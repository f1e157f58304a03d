"""The diagnostics: one module per family with its rules, conditions, words and fixes."""
