"""Comparing tables with each other and with their source, and mending them."""
