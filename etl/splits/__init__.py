"""Splits: exact shares of every class, the same on any machine, at any size.

Pure: `plan` (what was asked), `weights` (how many images of each class are used), `quotas`, `rounding` and `shares`
(how many go to each split), `cuts` (where a class's order is cut), `group_quotas` (whole groups), `label_sets` (several
labels an image), `page` (the report). Verbs on DataFrames: `candidates` (which images take part), `choice` (which split
each goes to), `positions` (where it is there), `group_rows`, `leaks`. Edges: `metadata` (what is read), `lookups`
(whether the pictures are there), `output` (what is written).
"""
