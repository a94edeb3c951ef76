"""Images: headers, checks, conversion, and near duplicates."""
