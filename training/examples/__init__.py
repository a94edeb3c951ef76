"""Trainings that stand alone, each in one file, to begin your own with."""
