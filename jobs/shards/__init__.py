"""The parts of shard.py."""
