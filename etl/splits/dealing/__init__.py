"""The assignment of images to splits: shares, quotas, cuts and groups."""
