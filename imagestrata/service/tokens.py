"""Bearer tokens for reading and writing. Only their SHA-256 is stored.

A token has 256 random bits, so a plain hash without salt is safe and can be looked up.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from filelock import FileLock, Timeout

from formats.origin import created
from formats.stores.storage import Storage
from schemas.errors import SchemaError
from schemas.parsing import check_digest, parsed

Scope = Literal["read", "write"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
NAME = "tokens.json"
_LOCK = "tokens.lock"
_LOCK_SECONDS = 30.0
_FORMAT = 1
_PREFIX = "ist_"
_TEXT = re.compile(r"[!-~]{32,}")


@dataclass(frozen=True, slots=True)
class Token:
    """A stored token: its name, its scope (write includes read), its hash and its time of creation."""

    name: str
    scope: Scope
    sha256: str
    created: str


class Tokens:
    """The tokens of a service, stored in one file."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def are_there(self) -> bool:
        """Whether a token was ever created, even if all were revoked since."""
        return self._storage.exists(NAME)

    def all(self) -> list[Token]:
        """Return all tokens in the order of their creation. Raises `SchemaError` for a damaged file."""
        try:
            text = self._storage.read_text(NAME)
        except FileNotFoundError:
            return []
        except UnicodeDecodeError as error:
            raise SchemaError(f"Wanted a file of tokens at {self._storage.address}/{NAME}. Found: {error}") from None
        return self._parsed(text)

    def create(self, name: str, scope: Scope, *, text: str | None = None) -> str:
        """Create a token with a name that no other one has, store its hash, and return it; it cannot be shown again.
        Without ``text``, it is random. Raises SchemaError if another token has the name, or if ``text`` can be guessed:
        it is shorter than 32 characters, or not printable ASCII without spaces.
        """
        if text is not None and not _TEXT.fullmatch(text):
            raise SchemaError(
                f"Wanted a token of at least 32 printable ASCII characters without spaces. Found: {len(text)} "
                "characters. Make one: openssl rand -hex 32"
            )
        text = text or _PREFIX + secrets.token_urlsafe(32)
        new = Token(name, scope, _hashed(text), created())

        def add(kept: list[Token]) -> list[Token]:
            # The same token again changes nothing, so that a container can store it at each start.
            if any((one.name, one.scope, one.sha256) == (new.name, new.scope, new.sha256) for one in kept):
                return kept
            if any(token.name == name for token in kept):
                raise SchemaError(
                    f"Wanted a new name for a token. Found: {name!r}, which another token has. "
                    "Revoke that one first, or choose another name."
                )
            return [*kept, new]

        self._change(add)
        return text

    def revoke(self, name: str) -> None:
        """Delete a token. Raises `SchemaError` if no token has this name."""

        removed: list[Token] = []  # the change may run twice

        def remove(kept: list[Token]) -> list[Token]:
            left = [token for token in kept if token.name != name]
            if len(left) == len(kept) and not removed:
                names = ", ".join(token.name for token in kept) or "none"
                raise SchemaError(f"Wanted the name of a token. Found: {name!r}; there are: {names}")
            removed.extend(token for token in kept if token.name == name)
            return left

        self._change(remove)

    @staticmethod
    def find_in(tokens: Sequence[Token], text: str) -> Token | None:
        """Find the stored token that matches a text; None if there is none."""
        hashed = _hashed(text)
        return next((token for token in tokens if secrets.compare_digest(token.sha256, hashed)), None)

    def _parsed(self, text: str) -> list[Token]:
        place = f"{self._storage.address}/{NAME}"
        return parsed(text, _read, what="file of tokens", place=place, newest=_FORMAT)

    def _change(self, change: Callable[[list[Token]], list[Token]]) -> None:
        """Change the tokens in one step. Concurrent changes of two processes both last."""

        def text_of(before: str | None) -> str:
            tokens = change([] if before is None else self._parsed(before))
            return json.dumps({"format": _FORMAT, "tokens": [asdict(token) for token in tokens]}, indent=2) + "\n"

        if self._storage.is_s3:
            self._storage.replace_text(NAME, text_of)
            return
        self._storage.make_folder("")
        try:
            with FileLock(self._storage.path(_LOCK), timeout=_LOCK_SECONDS):
                before = self._storage.read_text(NAME) if self._storage.exists(NAME) else None
                self._storage.publish_text(NAME, text_of(before))
        except Timeout:
            raise SchemaError(
                f"Wanted to change {self._storage.address}/{NAME}. Found: another process has held {_LOCK} for "
                f"{_LOCK_SECONDS:.0f} s"
            ) from None


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _read(found: dict[str, object]) -> list[Token]:
    rows = found["tokens"]
    if not isinstance(rows, list):
        raise TypeError("no list of tokens")
    tokens = [Token(**row) for row in rows]
    for token in tokens:
        check_digest(token.sha256)
        if token.scope not in SCOPES or not isinstance(token.name, str):
            raise ValueError(f"a token {token.name!r} of the scope {token.scope!r}")
    return tokens
