"""Rounding of a matrix of strata and splits so that the totals of blocks of strata are rounded too. Pure arithmetic.

Each cell is its floor or is raised by one; the number of raises in a stratum follows from its total. Families partition
the strata into blocks, and the raises of a block in a split have bounds. There are two kinds of families:

- A chain, in which each family is finer than the one before: all strata, then super-classes, then classes. Chain and
  strata are two laminar families, so the matrix is a flow, and a path of moves can correct each total (Hoffman's
  circulation theorem guarantees it).
- Families that cross the chain, as sites cross classes. With two splits and one such family this is also a flow: a path
  that alternates between both corrects it. With more, a rounding of all totals need not exist (Causey, Cox and Ernst
  1985), and finding one is hard. Then paths over pairs of splits and a seeded walk get as near as they can.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

# A block of the chain in a split: level, block, split. ``TOP`` is above all of them.
Node = tuple[int, int, int]
TOP: Node = (-1, 0, 0)
_VALUE = -2  # the level of a block of a crossing family, on a path over a pair of splits
# The most steps of a walk, the steps per cell, and the most totals that it examines.
_STEPS, _STEPS_A_CELL, _WORK = 6_000, 200, 10_000_000
_UPHILL = 0.05  # the probability that a walk keeps a step that increases the distance


class Family:
    """A partition of the strata into blocks, with bounds for the raises of each block in each split. ``blocks`` is the
    block of each stratum, int64 ``(strata,)``, dense from 0. ``below`` and ``above`` are int64 ``(blocks, splits)``.
    ``loads`` has the current raises.
    """

    def __init__(self, blocks: NDArray[np.int64], below: NDArray[np.int64], above: NDArray[np.int64]) -> None:
        self.blocks, self.below, self.above = blocks, below, above
        self.loads = np.zeros_like(below)
        self._order = np.argsort(blocks, kind="stable")
        self._starts = np.searchsorted(blocks[self._order], np.arange(len(below) + 1))

    def rows(self, block: int) -> NDArray[np.int64]:
        """The strata of a block, ascending."""
        rows: NDArray[np.int64] = self._order[self._starts[block] : self._starts[block + 1]]
        return rows

    def off(self) -> NDArray[np.int64]:
        """The distance of each load from its bounds, int64 ``(blocks, splits)``: positive if there are too many."""
        off: NDArray[np.int64] = np.maximum(self.loads - self.above, 0) - np.maximum(self.below - self.loads, 0)
        return off

    def takes(self, block: int, give: int, take: int) -> bool:
        """Whether a block may have one raise less in split ``give`` and one more in split ``take``."""
        return bool(
            self.loads[block, give] > self.below[block, give] and self.loads[block, take] < self.above[block, take]
        )


def is_finer(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    """Whether each block of a partition is inside one block of another. Blocks are dense from 0."""
    pairs = np.unique(one * (int(other.max(initial=0)) + 1) + other)
    return len(pairs) == int(one.max(initial=-1)) + 1


class Rounding:
    """Raises of cells, which are moved until all totals are within their bounds or as near as possible."""

    def __init__(
        self,
        raised: NDArray[np.bool_],
        may_rise: NDArray[np.bool_],
        *,
        chain: Sequence[Family],
        others: Sequence[Family] = (),
    ) -> None:
        """Start from the cells that are ``raised``, bool ``(strata, splits)``, whose strata have their totals; it is
        changed in place. The families of the ``chain`` go from the coarsest, which has one block, to the finest. A
        rounding of their totals must exist. ``others`` cross the chain.
        """
        self._raised, self._may_rise = raised, may_rise
        self._chain, self._others = list(chain), list(others)
        self._leaves = self._chain[-1]
        self._parents = [np.zeros(1, dtype=np.int64)]
        self._children: list[list[NDArray[np.int64]]] = []
        for coarse, fine in pairwise(self._chain):
            parents = np.zeros(len(fine.below), dtype=np.int64)
            parents[fine.blocks] = coarse.blocks
            self._parents.append(parents)
            self._children.append([np.flatnonzero(parents == block) for block in range(len(coarse.below))])
        for family in (*self._chain, *self._others):
            np.add.at(family.loads, family.blocks, raised)
        self._steps: dict[int, NDArray[np.bool_]] = {}
        self._moves: list[tuple[int, int, int]] = []

    def settle(self, random: np.random.Generator | None = None) -> None:
        """Move raises until each total of the chain is within its bounds; ``random`` chooses the path."""
        for level, family in enumerate(self._chain):
            while (off := family.off()).any():
                is_over = (off > 0).any()
                block, split = np.argwhere(off > 0 if is_over else off < 0)[0].tolist()
                node = (level, block, split)
                start, end = (node, self._parent(node)) if is_over else (self._parent(node), node)
                self._apply(self._route(start, end, random), random)

    def mend(self, random: np.random.Generator) -> None:
        """Move raises until each total of the other families is within its bounds, as far as such moves are found. The
        chain's totals stay within their bounds. ``random`` decides the steps of a walk, for totals that paths cannot
        correct.
        """
        moved = True
        while moved and self._distance():
            moved = False
            for family in self._others:
                for block, split in np.argwhere(family.off()).tolist():
                    while (off := int(family.off()[block, split])) and self._mend(family, block, split, off > 0):
                        moved = True
        if self._distance():
            self._walk(random)

    def _distance(self) -> int:
        """The total distance of the other families' totals from their bounds."""
        return int(sum(np.abs(family.off()).sum() for family in self._others))

    def _parent(self, node: Node) -> Node:
        level, block, split = node
        return TOP if level == 0 else (level - 1, int(self._parents[level][block]), split)

    def _route(self, start: Node, end: Node, random: np.random.Generator | None) -> list[Node]:
        """Find a path along which to pass a raise; within a finest block, it changes its split."""
        # In a chain of one family it is a shortest path. With more families, a shortest-path search would visit nearly
        # all blocks, so the search continues from the latest node, towards the blocks that contain `end` if possible.
        is_flat = len(self._chain) == 1
        towards = {end[:2]}
        above = end
        while above != TOP:
            above = self._parent(above)
            towards.add(above[:2])
        came_from: dict[Node, Node | None] = {start: None}
        queue = deque(came_from)
        while queue:
            node = queue.popleft() if is_flat else queue.pop()
            further = list(self._following(node))
            if random is not None:
                random.shuffle(further)
            if not is_flat:
                further.sort(key=lambda one: one[:2] in towards)
            for following in further:
                if following not in came_from:
                    came_from[following] = node
                    if following == end:
                        path = [end]
                        while (before := came_from[path[-1]]) is not None:
                            path.append(before)
                        return path[::-1]
                    queue.append(following)
        raise AssertionError("a controlled rounding always exists")

    def _following(self, node: Node) -> Iterator[Node]:
        """The nodes to which a raise can be passed: up if there is room, down if there is a raise to spare."""
        level, block, split = node
        if node == TOP:
            family = self._chain[0]
            yield from ((0, 0, split) for split in np.flatnonzero(family.loads[0] > family.below[0]).tolist())
            return
        if self._chain[level].loads[block, split] < self._chain[level].above[block, split]:
            yield self._parent(node)
        if level + 1 == len(self._chain):
            yield from ((level, block, other) for other in np.flatnonzero(self._steps_of(block)[split]).tolist())
        else:
            finer, children = self._chain[level + 1], self._children[level][block]
            spare = children[finer.loads[children, split] > finer.below[children, split]]
            yield from ((level + 1, child, split) for child in spare.tolist())

    def _steps_of(self, leaf: int) -> NDArray[np.bool_]:
        """The pairs of splits between which a stratum of a finest block can move a raise, ``(splits, splits)``."""
        if leaf not in self._steps:
            rows = self._leaves.rows(leaf) if len(self._leaves.below) > 1 else slice(None)
            raised = self._raised[rows]
            free = (self._may_rise[rows] & ~raised).astype(np.float32)
            self._steps[leaf] = raised.T.astype(np.float32) @ free > 0
        return self._steps[leaf]

    def _apply(self, path: Sequence[Node], random: np.random.Generator | None) -> None:
        for (level, block, split), (to_level, _, other) in pairwise(path):
            if level == to_level:
                rows = self._movable(self._leaves.rows(block), split, other)
                self._move(int(rows[0] if random is None else random.choice(rows)), split, other)

    def _movable(self, rows: NDArray[np.int64], give: int, take: int) -> NDArray[np.int64]:
        """The strata of these that can move a raise from one split to another."""
        raised = self._raised
        movable: NDArray[np.int64] = rows[raised[rows, give] & self._may_rise[rows, take] & ~raised[rows, take]]
        return movable

    def _move(self, row: int, give: int, take: int) -> None:
        self._moves.append((row, give, take))
        self._raised[row, give], self._raised[row, take] = False, True
        for family in (*self._chain, *self._others):
            block = family.blocks[row]
            family.loads[block, give] -= 1
            family.loads[block, take] += 1
        self._steps.pop(int(self._leaves.blocks[row]), None)

    def _undo(self, to: int) -> None:
        """Undo all moves after the first ``to``."""
        back = self._moves[to:][::-1]
        for row, give, take in back:
            self._move(row, take, give)
        del self._moves[to:]

    def _mend(self, family: Family, block: int, split: int, is_over: bool) -> bool:
        """Bring one total nearer to its bounds, by a path over this and another split that changes no other total."""
        sign = 1 if is_over else -1
        room = sign * (2 * family.loads[block] - family.below[block] - family.above[block])
        room[split] = np.iinfo(np.int64).max
        for other in np.argsort(room, kind="stable")[:-1].tolist():
            give, take = (split, other) if is_over else (other, split)
            start, before = len(self._moves), self._distance()
            for move in self._exchange(family, block, give, take):
                self._move(*move)
            if self._distance() < before:
                return True
            self._undo(start)
        return False

    def _exchange(self, family: Family, block: int, give: int, take: int) -> list[tuple[int, int, int]]:
        """The shortest list of moves that moves a raise of a block from one split to another; empty without one."""
        # All other totals of the family and the chain stay within their bounds:
        #   site 3 gives   (class 7, site 3) moves from split 0 to 1; class 7 now lacks one in split 0:
        #   site 5 takes   (class 7, site 5) moves from split 1 to 0, if site 5 has room there; else it gives in turn
        deepest = len(self._chain) - 1
        start = (_VALUE, block)
        came_from: dict[tuple[int, int], tuple[tuple[int, int], int] | None] = {start: None}
        queue = deque([start])

        def moves(last: tuple[tuple[int, int], int] | None) -> list[tuple[int, int, int]]:
            found = []
            while last is not None:
                before, row = last
                if row >= 0:
                    found.append((row, give, take) if before[0] == _VALUE else (row, take, give))
                last = came_from[before]
            return found[::-1]

        while queue:
            node = queue.popleft()
            level, number = node
            if level == _VALUE:
                for row in self._movable(family.rows(number), give, take).tolist():
                    leaf = (deepest, int(self._leaves.blocks[row]))
                    if leaf not in came_from:
                        came_from[leaf] = (node, row)
                        queue.append(leaf)
                continue
            following: list[tuple[tuple[int, int], int]] = []
            if level == deepest:
                rows = self._movable(self._leaves.rows(number), take, give)
                values = family.blocks[rows].tolist()
                for row, value in zip(rows.tolist(), values, strict=True):
                    if value != block and family.takes(value, take, give):
                        return moves((node, row))
                following = [((_VALUE, value), row) for row, value in zip(rows.tolist(), values, strict=True)]
            else:
                finer, children = self._chain[level + 1], self._children[level][number].tolist()
                following = [((level + 1, child), -1) for child in children if finer.takes(child, take, give)]
            if self._chain[level].takes(number, give, take):
                if level == 0:
                    return moves((node, -1))
                following.append(((level - 1, int(self._parents[level][number])), -1))
            for one, row in following:
                if one not in came_from:
                    came_from[one] = (node, row)
                    queue.append(one)
        return []

    def _walk(self, random: np.random.Generator) -> None:
        """Take seeded steps, where paths find nothing. A step brings one total nearer, sometimes at a cost."""
        now = best = self._distance()
        self._moves.clear()
        kept = 0
        totals = sum(family.loads.size for family in (*self._chain, *self._others))
        for _ in range(min(_STEPS, _STEPS_A_CELL * self._raised.size, _WORK // totals)):
            start = len(self._moves)
            self._step(random)
            found = self._distance()
            if found > now and random.random() > _UPHILL:
                self._undo(start)
                continue
            now = found
            if now < best:
                best, kept = now, len(self._moves)
                if not best:
                    return
        self._undo(kept)

    def _step(self, random: np.random.Generator) -> None:
        """Bring one total nearer to its bounds by a random move, and the totals of the chain back within theirs."""
        wrong = [(family, where) for family in self._others for where in np.argwhere(family.off())]
        family, where = wrong[random.integers(len(wrong))]
        block, split = int(where[0]), int(where[1])
        other = int(random.integers(self._raised.shape[1] - 1))
        other += other >= split
        give, take = (split, other) if family.off()[block, split] > 0 else (other, split)
        if len(rows := self._movable(family.rows(block), give, take)):
            self._move(int(random.choice(rows)), give, take)
            self.settle(random)
