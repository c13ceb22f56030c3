"""Tokens to text as it may be shown: whole characters only, and nothing that could still turn
out to begin a stop string.

Knows nothing of models; what it emits depends on the tokens alone, so a later attempt that
replays them stands exactly where the former one stood."""

import codecs
from collections.abc import Iterable, Sequence

from tensor_llm.tokenizer import Tokenizer


class TextStream:
    """Feed it tokens with `push`, end it with `finish`; the parts joined are the answer.

    Once `stopped`, a stop string was complete: the text ends before it, and more tokens are
    not welcome.

    An answer goes on behind its prompt, so that a space which SentencePiece writes before its
    first word belongs to it. `at_start`: the tokens begin a text, and that space is left out.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str] = (), *, at_start: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._opening = tokenizer.opening(at_start=at_start)
        self._stop = tuple(stop)
        # holds the first bytes of a character until the rest comes
        self._characters = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        # certain, but not yet told
        self._owed = ""
        self.stopped = False

    def resume(self, tokens: Iterable[int], text: str) -> None:
        """Replays what a former attempt emitted; what it had not yet shown of that comes with
        the next part.

        Raises:
            ValueError: `text` does not begin what these tokens spell.
        """
        shown = ""
        for token in tokens:
            if self.stopped:
                break
            shown += self.push(token)
        if not shown.startswith(text):
            raise ValueError(f"text = {text[-40:]!r}: allowed is what the emitted tokens spell")
        self._owed = shown[len(text) :]

    def push(self, token: int) -> str:
        """The text that is certain now; may be empty."""
        assert not self.stopped
        part = self._opening.take(self._tokenizer.token_bytes(token))
        text = self._characters.decode(part)
        return self._take_owed() + self._release(self._held + text)

    def finish(self) -> str:
        """What was held back, when no token follows; half a character shows as U+FFFD."""
        owed = self._take_owed()
        if self.stopped:
            return owed
        certain = self._release(self._held + self._characters.decode(b"", final=True))
        rest, self._held = self._held, ""
        return owed + certain + rest

    def _take_owed(self) -> str:
        owed, self._owed = self._owed, ""
        return owed

    def _release(self, text: str) -> str:
        end = _first_stop(text, self._stop)
        if end is not None:
            self.stopped, self._held = True, ""
            return text[:end]
        safe = len(text) - _undecided(text, self._stop)
        self._held = text[safe:]
        return text[:safe]


def _first_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where the stop string begins that is complete first; of two complete at once, the longer:
    the answer must not depend on where tokens end."""
    found = [(text.find(word) + len(word), text.find(word)) for word in stop if word in text]
    return min(found)[1] if found else None


def _undecided(text: str, stop: Sequence[str]) -> int:
    """Length of the longest end of `text` that begins a stop string."""
    longest = max(map(len, stop), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(word.startswith(text[-length:]) for word in stop):
            return length
    return 0
