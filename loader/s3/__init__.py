"""Objects and listings of S3-compatible storage."""
