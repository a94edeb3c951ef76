"""Count the bytes of versions. Bytes that several versions share count once."""


class Holdings:
    """Counts bytes by dataset, version and location. Not safe for threads."""

    def __init__(self) -> None:
        self.bytes = 0
        self._held: dict[str, dict[int, tuple[str, int]]] = {}

    def add(self, name: str, number: int, location: str, size: int) -> None:
        """Count a version whose bytes are at ``location``."""
        versions = self._held.setdefault(name, {})
        self.bytes -= _distinct(versions)
        versions[number] = location, size
        self.bytes += _distinct(versions)

    def remove(self, name: str, number: int | None) -> None:
        """Stop counting a version, or all versions of a dataset."""
        versions = self._held.pop(name, {})
        self.bytes -= _distinct(versions)
        kept = {} if number is None else {one: held for one, held in versions.items() if one != number}
        if kept:
            self._held[name] = kept
            self.bytes += _distinct(kept)


def _distinct(versions: dict[int, tuple[str, int]]) -> int:
    return sum(size for _, size in {*versions.values()})
