"""Text that knows which of its characters are foreign: here those that are upper case."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_llm.templates import text as texts
from tensor_llm.templates.text import Foreign

plain = st.text("ab \n-", max_size=12)
mixed = st.text("abAB \n-", max_size=12)
seps = st.sampled_from(["a", "A", "-", " ", "\n", "ab", "aA", "--"])
counts = st.integers(-1, 3)


def told(text: str) -> Foreign | str:
    """The text with its capitals foreign; the rest looks like the template's own."""
    mask = bytes(char.isupper() for char in text)
    return Foreign(text, mask) if 1 in mask else text


def check(found: str, wanted: str) -> None:
    assert str.__str__(found) == wanted
    assert texts.mask_of(found) == bytes(char.isupper() for char in wanted)


def check_all(found, wanted) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        check(one, other)


@given(mixed, st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([1, 2, -1, None]))
def test_slices_and_characters(text, start, stop, step):
    check(told(text)[start:stop:step], text[start:stop:step])
    check_all(list(told(text)), list(text))
    if text:
        check(told(text)[-1], text[-1])


@given(st.lists(mixed, max_size=5), mixed)
def test_joins(parts, between):
    check(texts.join([told(one) for one in parts], told(between)), between.join(parts))


@given(mixed, st.none() | seps, counts)
def test_splits(text, sep, most):
    check_all(texts.split(told(text), sep, most), text.split(sep, most))
    check_all(texts.rsplit(told(text), sep, most), text.rsplit(sep, most))


@given(mixed, st.booleans())
def test_lines(text, keep):
    check_all(texts.splitlines(told(text), keep), text.splitlines(keep))


@given(mixed, st.none() | st.sampled_from(["a", "A ", "\n-"]))
def test_strips(text, chars):
    check(texts.strip(told(text), chars), text.strip(chars))
    check(texts.strip(told(text), chars, right=False), text.lstrip(chars))
    check(texts.strip(told(text), chars, left=False), text.rstrip(chars))


@given(mixed, seps, mixed, counts)
def test_replacements(text, old, new, count):
    check(texts.replace(told(text), old, told(new), count), text.replace(old, new, count))


@given(st.lists(plain | st.sampled_from(["%s", "%%"]), max_size=5), st.lists(mixed, max_size=5))
def test_formats(parts, values):
    form = "".join(parts)
    given_values = tuple(values[: parts.count("%s")])
    if len(given_values) < parts.count("%s"):
        with pytest.raises(TypeError):
            texts.percent(form, given_values)
        return
    check(texts.percent(form, tuple(map(told, given_values))), form % given_values)


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("%5s", told("A")),
        ("%(x)s", {"x": told("A")}),
        ("%s", [told("A")]),
        ("%d %s", (1, told("A"))),
    ],
)
def test_other_formats_are_foreign_as_a_whole(form, values):
    found = texts.percent(form, values)
    assert set(texts.mask_of(found)) == {1}


@given(mixed)
def test_spans_are_the_foreign_stretches(text):
    assert texts.spans_of(told(text)) == [one.span() for one in re.finditer("[A-Z]+", text)]
