"""What outputs of jobs share: folders that a manifest publishes."""
