"""The order of an epoch, its batches, and positions in it. No I/O."""
