"""How fast a training will read, before it runs."""
