"""Makes a trace's rows fit a described cluster. Owns the scaling of lengths and of arrivals, and
the words that say what was done."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from routing.simulation.described import Described, Fit
from routing.simulation.request import SHARING, Request, class_of, label_of
from routing.simulation.trace import BLOCK_TOKENS, Row

FITTING_SHARE = 0.99
"""So many prompts fit the context after scaling; the longest are cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Requests in order of arrival, and in words what was done to the rows."""

    requests: list[Request]
    words: list[str]


def fit(rows: Sequence[Row], described: Described) -> Fitted:
    """Answers are cut to half of the context; then prompts are scaled or cut to what is left."""
    context = described.context
    half = context // 2
    factor = _factor(rows, described)
    requests = []
    cut_prompts = cut_outputs = 0
    for number, row in enumerate(rows):
        output = min(max(row.output, 1), half)
        wanted = max(math.floor(row.prompt * factor), 1)
        prompt = min(wanted, context - output)
        cut_outputs += row.output > half
        cut_prompts += prompt < wanted
        # prompts that begin alike are one producer's
        source = row.blocks[0] if row.blocks else number
        block_tokens = max(math.floor(BLOCK_TOKENS * factor), 1)
        requests.append(
            Request(
                number=number,
                arrive_s=row.arrive_s,
                prompt=prompt,
                output=output,
                job_class=class_of(source),
                label=label_of(source),
                blocks=row.blocks[: -(-prompt // block_tokens)],
                block_tokens=block_tokens,
            )
        )
    words = [
        f"prompts: multiplied by {factor:.4g}, {cut_prompts} of {len(rows)} cut to fit the "
        f"context of {context} tokens",
        f"answers: {cut_outputs} cut to {half} tokens; each job asks for just the tokens the "
        "trace says were made",
        SHARING,
    ]
    return Fitted(requests=requests, words=words)


def _factor(rows: Sequence[Row], described: Described) -> float:
    if described.fit is Fit.CLIP:
        return 1.0
    room = described.context - _long([min(row.output, described.context // 2) for row in rows])
    return min(1.0, room / max(_long([row.prompt for row in rows]), 1))


def _long(lengths: list[int]) -> int:
    return sorted(lengths)[min(int(len(lengths) * FITTING_SHARE), len(lengths) - 1)]


def released(requests: Sequence[Request]) -> Fitted:
    """All of them at time 0."""
    moved = [replace(request, arrive_s=0.0) for request in requests]
    return Fitted(requests=moved, words=["arrivals: all at time 0"])


def loaded(requests: Sequence[Request], load: float, capacity_s: float) -> Fitted:
    """Arrivals stretched or squeezed by one factor, so that work which takes the whole cluster
    `capacity_s` at its best arrives in `capacity_s / load`."""
    span_s = requests[-1].arrive_s
    factor = capacity_s / load / span_s if span_s else 1.0
    moved = [replace(request, arrive_s=request.arrive_s * factor) for request in requests]
    words = f"arrivals: gaps multiplied by {factor:.4g}, for a load of {load:g} of capacity"
    return Fitted(requests=moved, words=[words])
