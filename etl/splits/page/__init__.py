"""The HTML report of a split."""
