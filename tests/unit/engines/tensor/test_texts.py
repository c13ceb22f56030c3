"""Training texts by path."""

import os

import pytest

from engines.tensor import texts
from engines.tensor.texts import read_texts
from noidle.errors import InvalidJob


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "text"
    (folder / "book" / "deep").mkdir(parents=True)
    (folder / "book" / "b.txt").write_text("second")
    (folder / "book" / "a.md").write_text("first 猫")
    (folder / "book" / "deep" / "c.rst").write_text("third")
    (folder / "book" / "image.png").write_bytes(b"\x89PNG\xff")
    (folder / "book" / ".hidden.txt").write_text("hidden")
    (folder / "data.bin").write_text("named outright")
    (tmp_path / "secret.txt").write_text("secret")
    return folder


def test_a_folder_gives_its_text_files_in_order_of_name(root):
    assert read_texts("book", root) == ["first 猫", "second", "third"]


def test_a_file_named_outright_may_have_any_suffix(root):
    assert read_texts("data.bin", root) == ["named outright"]


def test_an_absolute_path_inside_is_as_good(root):
    assert read_texts(str(root / "book" / "b.txt"), root) == ["second"]


def test_a_text_folder_may_itself_be_a_link(root, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(root)
    assert read_texts("book/b.txt", link) == ["second"]


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "/etc/passwd", "book/../../secret.txt", "nothing", "a\x00b", "x" * 5000],
)
def test_a_path_that_leads_outside_or_to_nothing_is_refused(root, path):
    with pytest.raises(InvalidJob) as refused:
        read_texts(path, root)
    assert refused.value.field == "path"
    assert "NOIDLE_TEXT_DIR" in refused.value.allowed


def test_a_link_that_leads_outside_is_refused_by_name(root, tmp_path):
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(InvalidJob):
        read_texts("link.txt", root)


def test_a_link_in_a_folder_that_leads_outside_refuses_the_folder(root, tmp_path):
    (root / "book" / "z.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(InvalidJob, match=r"book \(z\.txt\)"):
        read_texts("book", root)


def test_a_folder_linked_from_outside_is_refused(root, tmp_path):
    (root / "out").symlink_to(tmp_path)
    with pytest.raises(InvalidJob):
        read_texts("out/secret.txt", root)


def test_a_pipe_is_no_text(root):
    os.mkfifo(root / "pipe.txt")
    with pytest.raises(InvalidJob):
        read_texts("pipe.txt", root)


def test_bytes_that_are_no_utf8_name_their_file_and_place(root):
    (root / "book" / "b.txt").write_bytes(b"abc\xff")
    with pytest.raises(InvalidJob) as refused:
        read_texts("book", root)
    assert "book/b.txt, byte 3" in str(refused.value)
    assert refused.value.allowed == "UTF-8 text"


def test_too_much_text_is_refused_before_it_is_read(root, monkeypatch):
    monkeypatch.setattr(texts, "MAX_BYTES", 10)
    with pytest.raises(InvalidJob, match="at most 10 bytes"):
        read_texts("book", root)


def test_a_folder_without_text_says_what_counts(root):
    (root / "empty").mkdir()
    with pytest.raises(InvalidJob, match=r"\.md"):
        read_texts("empty", root)


def test_blank_text_is_no_text(root):
    (root / "blank.txt").write_text(" \n")
    with pytest.raises(InvalidJob, match="not empty"):
        read_texts("blank.txt", root)
