"""The page beside a split that shows what is in it."""
