"""Comparison of tables with each other and with their source, and repair."""
