"""Plan as topicmappr does, pass by pass, so that no plan is worse than topicmappr's for the same bytes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from zkmigrate.cluster.placement.board import Board, Task
from zkmigrate.cluster.placement.search import Found


def by_passes(task: Task) -> Found:
    """Return the moves as topicmappr chooses them, up to the point with the narrowest range.

    In each pass every source, the lowest level first, gives the heaviest replica that its highest taker may
    take. The answer costs no more bytes than topicmappr's at a range that is no wider. Between equal ranges
    the smaller deviation wins. The sum of the levels is constant, so the sum of their squares measures it.
    """
    board = Board(task)
    level = board.level
    squares = sum(level[broker] ** 2 for broker in task.ranked)
    best, mark = (board.width(), squares), 0
    order = sorted((-level[broker], broker) for broker in task.takers)
    again = True
    while again:
        again = False
        for source in sorted(task.sources, key=board.order):
            for _, row in reversed(board.kept[source][-task.window :]):
                to = _apart(board, row, order)
                fits = board.bytes + task.replicas.size[row] <= task.limit
                if to is not None and fits and board.allowed(row, to):
                    squares -= level[source] ** 2 + level[to] ** 2
                    moved = [broker for broker in (source, to) if board.takes[broker]]
                    for broker in moved:
                        del order[bisect_left(order, (-level[broker], broker))]
                    board.make(((row, to),))
                    for broker in moved:
                        insort(order, (-level[broker], broker))
                    squares += level[source] ** 2 + level[to] ** 2
                    again = True
                    best, mark = min((best, mark), ((board.width(), squares), len(board.log)))
                    break
    board.back_to(mark)
    return Found(dict(sorted(board.moved().items())), tuple(board.level), 0, 0.0)


def _apart(board: Board, row: int, order: Iterable[tuple[int, int]]) -> int | None:
    """Return the first taker that shares no rack with the rest of the replica list.

    For local moves this is the first taker in the replica's own rack. order: the takers as (level, broker),
    in the order in which to try them.
    """
    racks, giver = board.task.racks, board.at[row]
    replicas = board.sets[board.task.replicas.partition[row]]
    rest = {racks[broker] for broker in replicas if broker != giver}
    for _, taker in order:
        apart = racks[taker] == racks[giver] if board.task.local else racks[taker] not in rest
        if apart and taker not in replicas:
            return taker
    return None
