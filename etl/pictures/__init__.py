"""Images: headers, checks and conversion."""
