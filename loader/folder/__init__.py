"""Images from class folders."""
