"""A router's garbage."""

import gc
import weakref

from routing.garbage import OLD_EVERY, look_at_old_objects_seldom


class Ring:
    def __init__(self) -> None:
        self.itself = self


def test_old_objects_are_looked_at_seldom_and_young_ones_as_ever() -> None:
    before = gc.get_threshold()
    try:
        look_at_old_objects_seldom()
        assert gc.get_threshold() == (*before[:2], OLD_EVERY)
        found = weakref.ref(Ring())
        kept = [[] for _ in range(2 * before[0] * (before[1] + 1))]
        assert kept
        assert found() is None
    finally:
        gc.set_threshold(*before)
