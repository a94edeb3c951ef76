"""Which sample when: the order of an epoch, its batches and where it stands. No I/O."""
