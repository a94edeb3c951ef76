"""Sources and shards for DALI, torch and accelerate."""
