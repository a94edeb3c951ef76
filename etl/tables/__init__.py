"""The tables of a dataset: what a metadata table holds and held, its records, its runs, and the removal of images."""
