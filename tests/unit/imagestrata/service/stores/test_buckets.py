"""The dataset service over a bucket: the size of an object's parts."""

from imagestrata.service.stores.buckets import part_bytes


def test_part_sizes_respect_the_limit_of_s3_on_parts() -> None:
    assert part_bytes(0) == part_bytes(10_000 << 24) == 16 << 20
    for size in ((10_000 << 24) + 1, 10**12, 5 << 40):
        part = part_bytes(size)
        assert -(-size // part) <= 10_000
        assert part % (1 << 20) == 0  # if a file can be mapped
        assert part < 5 << 30
