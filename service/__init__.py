"""The REST dataset service. Nothing is here yet."""
