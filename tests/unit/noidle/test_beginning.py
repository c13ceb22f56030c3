"""How a prompt begins."""

from noidle.beginning import FIRST_BYTES, beginnings, cuts


def test_a_text_is_cut_at_steps_that_grow_with_it() -> None:
    assert list(cuts(4096)) == [512, 1024, 1536, 2048, 3072, 4096]
    assert len(list(cuts(1 << 20))) == 22


def test_texts_that_begin_alike_share_just_those_beginnings() -> None:
    common, other = b"a" * 1600, b"b" * 500
    shared = [one for one in beginnings(common + other) if one in beginnings(common + common)]
    assert [size for size, _ in shared] == [512, 1024, 1536]


def test_a_short_text_has_no_beginning() -> None:
    assert beginnings(b"x" * (FIRST_BYTES - 1)) == []
