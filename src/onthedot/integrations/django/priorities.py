"""Django's priorities, -100 to 100, as those of a store, 1 to 10."""

from __future__ import annotations


def stored_priority(priority: int) -> int:
    """
    >>> [stored_priority(each) for each in (-100, -50, 0, 20, 50, 100)]
    [1, 3, 5, 6, 8, 10]
    """
    if priority < 0:
        return round(5 + priority / 25)
    return round(5 + priority / 20)


def django_priority(priority: int) -> int:
    """The priority that `stored_priority` makes of it.

    >>> [django_priority(each) for each in (1, 3, 5, 6, 8, 10)]
    [-100, -50, 0, 20, 60, 100]
    """
    if priority < 5:
        return (priority - 5) * 25
    return (priority - 5) * 20
