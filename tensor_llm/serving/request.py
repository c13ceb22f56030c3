"""What a caller wants of the core: tokens in, how many out, chosen how. Knows nothing of how far
it has come."""

from dataclasses import dataclass

from tensor_llm.sampling import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """
    Raises:
        ValueError: naming the field, its value and what is allowed.
    """

    # the prompt, and what an earlier attempt emitted after it
    tokens: tuple[int, ...]
    # to be generated; 0 where the text is only scored
    max_tokens: int
    sampling: Sampling = Sampling()  # noqa: RUF009  frozen
    # 0 is the most urgent class, larger ones give way to smaller
    rank: int = 1
    # any of them ends the answer and is not part of it
    eos_tokens: frozenset[int] = frozenset()
    # the log-probability of each generated token is wanted, too
    logprobs: bool = False
    # log-probabilities of the tokens 1…n-1 of `tokens` are wanted, nothing is generated
    score: bool = False
    # blocks of an equal beginning may be shared with others
    reuse: bool = True

    def __post_init__(self) -> None:
        least = 2 if self.score else 1
        if len(self.tokens) < least:
            raise ValueError(f"tokens has {len(self.tokens)}: allowed is at least {least}")
        if self.score != (self.max_tokens == 0) or self.max_tokens < 0:
            allowed = "0 with score" if self.score else "1 or more"
            raise ValueError(f"max_tokens = {self.max_tokens}: allowed is {allowed}")
        if self.rank < 0:
            raise ValueError(f"rank = {self.rank}: allowed is 0 or more")
