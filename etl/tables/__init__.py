"""The tables of a dataset: what a metadata table holds, held and records, its runs, and the removal of images."""
