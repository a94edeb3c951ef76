"""Splits: exact shares of each class, the same on any machine, at any size.

Pure modules: `plan` (the options), and in `dealing` `weights` (images used per class), `quotas`, `rounding` and
`shares` (images per split), `cuts` (cuts in the order of a class), `group_quotas` (whole groups), `label_sets` (several
labels per image), `page` (the report). Transforms of DataFrames: `candidates` (images that take part), `choice` (the
split of each image), `positions` (its position in the split), `group_rows`, `leaks`. Input and output: `metadata` (what
is read), `lookups` (whether the images exist), `output` (what is written).
"""
