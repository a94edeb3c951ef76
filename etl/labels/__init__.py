"""Label views: labels with a history, which correct those that images were ingested with."""
