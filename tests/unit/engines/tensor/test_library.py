"""Models in memory: who stays, who leaves, who waits."""

import threading

import pytest

from engines.tensor.library import Library, Resident
from engines.tensor.porter import Progress
from engines.tensor.step_memory import StepMemory
from noidle.errors import InvalidJob
from noidle.snapshot import ModelInfo

SIZE = 100


class Clock:
    now_s = 0.0

    def __call__(self):
        self.now_s += 1
        return self.now_s


class Shelf:
    """A store of models that are only names."""

    def __init__(self):
        self.newest = {}

    def put(self, name, revision="r1"):
        self.newest[name] = revision

    def current(self, name):
        return self.newest.get(name)

    def names(self):
        return sorted(self.newest)

    def revisions(self, name):
        return ["r1", "r2", "r3"]

    def info(self, name, revision):
        return ModelInfo(name=name, revision=revision)


class Core:
    kv_tokens_total, kv_tokens_free = 100, 60
    closed = False

    def close(self):
        self.closed = True


class Opener:
    """Memory for some models of one size."""

    def __init__(self, room):
        self.room = room
        self.opened = []

    def prepare(self, progress):
        pass

    def needed_bytes(self, info):
        return SIZE

    def room_bytes(self, taken):
        return self.room - taken

    def open(self, info, room_bytes, progress):
        self.opened.append((info.name, info.revision))
        return Resident(
            name=info.name,
            revision=info.revision,
            tokenizer=None,
            chat=None,
            core=Core(),
            context=10,
            capacity=10,
            eos_tokens=frozenset(),
            weight_bytes=SIZE,
            cache_bytes=0,
        )


@pytest.fixture
def shelf():
    shelf = Shelf()
    for name in "abc":
        shelf.put(name)
    return shelf


def library(shelf, models, on_short=lambda: False):
    opener = Opener(models * SIZE)
    return Library(shelf, opener, Clock(), on_short), opener


def load(library, name, revision="r1"):
    return library.load(name, revision, Progress(lambda: 0.0, 60))


def test_a_model_in_memory_is_shared(shelf):
    models, opener = library(shelf, 2)
    first = load(models, "a")
    assert models.take("a", "r1") is first
    assert load(models, "a") is first
    assert opener.opened == [("a", "r1")]
    assert models.take("b", "r1") is None


def test_the_idle_model_unused_longest_leaves_when_memory_is_short(shelf):
    models, _ = library(shelf, 2)
    a, b = load(models, "a"), load(models, "b")
    models.give(b)
    models.give(a)
    load(models, "c")
    assert models.loaded == ("a", "c")
    assert b.core.closed


def test_a_model_in_use_never_leaves(shelf):
    models, _ = library(shelf, 2)
    load(models, "a")
    models.give(load(models, "b"))
    load(models, "c")
    assert models.loaded == ("a", "c")


def test_a_load_waits_until_a_run_ends_where_only_that_makes_room(shelf):
    models, _ = library(shelf, 1)
    busy = load(models, "a")
    done = threading.Event()

    def later():
        load(models, "b")
        done.set()

    thread = threading.Thread(target=later)
    thread.start()
    while not models.short:
        assert not done.is_set()
    models.give(busy)
    thread.join(10)
    assert models.loaded == ("b",)
    assert not models.short


def test_a_model_larger_than_all_memory_is_refused_with_its_size(shelf):
    models, opener = library(shelf, 1)
    opener.room = SIZE - 1
    with pytest.raises(InvalidJob) as refused:
        load(models, "a")
    assert refused.value.field == "model"
    assert "MiB" in refused.value.allowed


def test_what_is_kept_only_to_be_quick_goes_first(shelf):
    asked = []
    models, opener = library(shelf, 1)

    def on_short():
        asked.append(1)
        opener.room = 2 * SIZE
        return False

    models._on_short = on_short
    models.give(load(models, "a"))
    load(models, "b")
    assert asked


def test_a_replaced_revision_leaves_with_its_last_run(shelf):
    models, _ = library(shelf, 9)
    old = load(models, "a", "r1")
    shelf.put("a", "r2")
    new = load(models, "a", "r2")
    assert models.take("a", "r1") is old
    models.give(old)
    models.give(old)
    assert old.core.closed
    assert models.take("a", "r1") is None
    models.give(new)
    assert not new.core.closed


def test_a_model_that_was_removed_leaves_with_its_last_run(shelf):
    models, _ = library(shelf, 9)
    a, b = load(models, "a"), load(models, "b")
    models.hold(a)
    del shelf.newest["a"]
    models.give(a)
    assert models.loaded == ("a", "b")
    models.give(a)
    assert a.core.closed
    models.give(b)
    assert models.loaded == ("b",)


def test_tokens_of_cache_are_those_of_all_models_in_memory(shelf):
    models, _ = library(shelf, 9)
    assert models.kv_tokens is None
    load(models, "a")
    load(models, "b")
    assert models.kv_tokens == (200, 120)


def test_a_run_keeps_the_revision_of_its_former_attempt_while_it_is_there(shelf):
    models, _ = library(shelf, 9)
    shelf.put("a", "r3")
    assert models.revision_for("a", None) == "r3"
    assert models.revision_for("a", "r2") == "r2"
    assert models.revision_for("a", "pruned") == "r3"


def test_an_unknown_model_is_refused_with_those_that_are_here(shelf):
    models, _ = library(shelf, 1)
    with pytest.raises(InvalidJob, match="a, b, c"):
        models.newest("nobody")


def test_the_models_take_turns_with_their_steps(shelf):
    models, _ = library(shelf, 2)
    assert models.working_bytes(lambda name: 5) is None
    load(models, "a").step_memory = StepMemory(fixed_bytes=100, token_bytes=1)
    load(models, "b").step_memory = StepMemory(fixed_bytes=100, token_bytes=4)
    assert models.working_bytes({"a": 5, "b": 3}.__getitem__) == 112
    assert models.working_bytes({"a": 60, "b": 3}.__getitem__) == 160


def test_any_model_in_memory_can_be_taken_by_what_it_is(shelf):
    models, _ = library(shelf, 2)
    load(models, "a")
    found = load(models, "b")
    assert models.take_any(lambda one: one.name == "b") is found
    assert found.users == 2
    assert models.take_any(lambda one: one.name == "c") is None
