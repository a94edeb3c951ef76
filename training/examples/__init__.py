"""Trainings in one file each, to copy and adapt."""
