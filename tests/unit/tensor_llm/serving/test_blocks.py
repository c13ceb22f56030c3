import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tensor_llm.serving.blocks import BlockPool, chain

BLOCKS = 6


class Pool(RuleBasedStateMachine):
    """Beside the plainest books: owners of each block, and what a block last held."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS, 4)
        self.owners = dict.fromkeys(range(BLOCKS), 0)
        self.held: dict[int, bytes] = {}

    lots = Bundle("lots")

    @rule(target=lots, count=st.integers(1, 4))
    def take(self, count):
        free = [block for block, owners in self.owners.items() if not owners]
        blocks = self.pool.take(count)
        if count > len(free):
            assert blocks is None
            return []
        assert set(blocks) <= set(free)
        # nothing is forgotten while there are blank ones
        blank = [block for block in free if block not in self.held]
        assert sum(block in self.held for block in blocks) == max(0, count - len(blank))
        for block in blocks:
            self.owners[block] += 1
            self.held.pop(block, None)
        return blocks

    @rule(lot=lots, text=st.integers(0, 3))
    def remember(self, lot, text):
        for place, block in enumerate(lot):
            digest = b"%d.%d" % (text, place)
            self.pool.remember(block, digest)
            if digest not in self.held.values():
                self.held.setdefault(block, digest)

    @rule(target=lots, text=st.integers(0, 3), count=st.integers(1, 4))
    def share(self, text, count):
        digests = [b"%d.%d" % (text, place) for place in range(count)]
        found = self.pool.find(digests)
        known = {digest: block for block, digest in self.held.items()}
        wanted = []
        for digest in digests:
            if digest not in known:
                break
            wanted.append(known[digest])
        assert found == wanted
        for block in found:
            self.pool.share(block)
            self.owners[block] += 1
        return found

    @rule(lot=consumes(lots))
    def give_back(self, lot):
        self.pool.give_back(lot)
        for block in lot:
            self.owners[block] -= 1

    @invariant()
    def the_books_agree(self):
        self.pool.check()
        assert self.pool.free == sum(not owners for owners in self.owners.values())
        assert self.pool.free + self.pool.used == self.pool.total == BLOCKS
        assert {block for block in self.owners if self.pool.owned_once(block)} == {
            block for block, owners in self.owners.items() if owners == 1
        }


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def test_the_block_owned_longest_ago_goes_first_and_ends_go_before_beginnings():
    pool = BlockPool(4, 2)
    for text in ("a", "b"):
        blocks = pool.take(2)
        for place, block in enumerate(blocks):
            pool.remember(block, f"{text}{place}".encode())
        pool.give_back(blocks)
    for gone in ("a1", "a0", "b1", "b0"):
        assert pool.find([gone.encode()])
        pool.take(1)
        assert not pool.find([gone.encode()])


def test_a_digest_tells_the_tokens_and_all_before_them():
    root = chain(b"salt", ())
    assert chain(root, [1, 2]) == chain(root, (1, 2))
    different = {
        chain(root, [1, 2]),
        chain(root, [2, 1]),
        chain(root, [1, 2, 0]),
        chain(chain(root, [1]), [2]),
        chain(chain(b"other", ()), [1, 2]),
    }
    assert len(different) == 5


@pytest.mark.parametrize("sizes", [(0, 4), (4, 0)])
def test_a_pool_without_room_is_refused(sizes):
    with pytest.raises(ValueError, match="= 0: allowed is 1 or more"):
        BlockPool(*sizes)
