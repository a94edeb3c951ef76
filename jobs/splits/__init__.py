"""The parts of jobs/split.py: options, what takes part, counting, the ways to share out, positions, the report."""
