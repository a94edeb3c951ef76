"""Which image goes to which split: shares, quotas, cuts and groups."""
