"""Measurements: `make bench-NAME` runs ``benchmarks/NAME.py`` and writes ``build/bench/NAME.json``."""
