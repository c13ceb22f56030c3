"""noidle run: a model in this process. Owns the options and the order; needs no cluster and no
Redis. What needs torch is imported once the options are right."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noidle.errors import ConfigError
from noidle.jobs import Generate, Score
from ops.commands import output
from ops.commands.options import Data, Json, data_dir
from ops.run.opening import Choice, Opened, WeightType, open_model, room_tokens
from ops.run.text import given_text, needed_text
from ops.run.whereabouts import find_model

if TYPE_CHECKING:
    from ops.run.session import Wish

# seeds are drawn as the cluster draws them
_SEED_BITS = 63

run = typer.Typer(
    no_args_is_help=True,
    help="Ask a model in this process: no cluster, no Redis.",
)

Text = Annotated[
    str | None, typer.Argument(metavar="[TEXT]", help="The text; - reads standard input.")
]
Prompt = Annotated[str | None, typer.Option(metavar="TEXT", help="The text, as an option.")]
TextFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Read the text from a file of UTF-8.")
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="PATH_OR_NAME",
        help="A model of `noidle model list`, or any folder with config.json, *.safetensors and "
        "tokenizer.json; ./NAME is always a folder.",
    ),
]
DType = Annotated[
    WeightType | None,
    typer.Option(
        "--dtype",
        help="How weights lie in memory; int8 and int4 are packed on load. Default: as stored.",
    ),
]
Threads = Annotated[
    int | None, typer.Option(min=1, max=4096, help="Cores to use; default by a quick measurement.")
]
Device = Annotated[str, typer.Option(metavar="NAME", help="As torch names it, such as cuda:0.")]
MaxTokens = Annotated[int | None, typer.Option(help="Tokens of the answer at most.")]
Temperature = Annotated[float, typer.Option(help="0 takes the likeliest token each time.")]
TopK = Annotated[int | None, typer.Option(help="Only the k likeliest tokens.")]
TopP = Annotated[float | None, typer.Option(help="Only the likeliest that reach this share.")]
Seed = Annotated[int | None, typer.Option(help="Repeats an answer; default drawn.")]
Stop = Annotated[
    list[str] | None, typer.Option(metavar="TEXT", help="Ends the answer; may be repeated.")
]


@run.command()
def generate(
    model: Model,
    text: Text = None,
    prompt: Prompt = None,
    text_file: TextFile = None,
    max_tokens: MaxTokens = 128,
    temperature: Temperature = 0.0,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    stop: Stop = None,
    dtype: DType = None,
    threads: Threads = None,
    device: Device = "cpu",
    data: Data = None,
    json: Json = False,
) -> None:
    """Continue a text."""
    job = _checked(
        prompt=needed_text(text, prompt, text_file),
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop=tuple(stop or ()),
    )
    opened = _open(model, data, dtype, threads, device)
    from ops.run.prompts import text_tokens

    assert job.prompt is not None
    _answer(opened, *text_tokens(opened, job.prompt), job, job.max_tokens, json=json)


@run.command()
def chat(
    model: Model,
    text: Text = None,
    prompt: Prompt = None,
    text_file: TextFile = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model is told beforehand.")
    ] = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = 0.0,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    stop: Stop = None,
    dtype: DType = None,
    threads: Threads = None,
    device: Device = "cpu",
    data: Data = None,
    json: Json = False,
) -> None:
    """Answer a message through the model's own template; without one, talk at the terminal."""
    asked = given_text(text, prompt, text_file)
    if asked is None and json:
        raise ConfigError("--json needs a message: give TEXT, --prompt or --text-file")
    job = _checked(
        # a conversation is checked turn by turn
        messages=_messages(system, "?" if asked is None else asked),
        max_tokens=1 if max_tokens is None else max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop=tuple(stop or ()),
    )
    opened = _open(model, data, dtype, threads, device)
    from ops.run.prompts import message_tokens

    if asked is None:
        _talk(opened, job, max_tokens, system)
    else:
        assert job.messages is not None
        _answer(opened, *message_tokens(opened, job.messages), job, max_tokens, json=json)


@run.command()
def score(
    model: Model,
    text: Text = None,
    prompt: Prompt = None,
    text_file: TextFile = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="A line for each token, before the perplexity.")
    ] = False,
    dtype: DType = None,
    threads: Threads = None,
    device: Device = "cpu",
    data: Data = None,
    json: Json = False,
) -> None:
    """Tell how likely a model finds a text: log-probabilities and perplexity."""
    job = Score(model="run", text=needed_text(text, prompt, text_file))
    opened = _open(model, data, dtype, threads, device)
    from ops.run import outcome
    from ops.run.prompts import text_tokens
    from ops.run.session import Session

    read, tokenize_ms = text_tokens(opened, job.text)
    context = opened.model.config.context
    session = Session(opened, min(context, max(2, len(read))))
    scored = session.score(read, tokenize_ms=tokenize_ms)
    session.close()
    if json:
        outcome.score_json(opened, scored)
    else:
        outcome.tell_score(opened, scored, each=tokens)


def _checked(**fields: Any) -> Generate:
    """By the rules of a job: a value that would be refused there is refused here."""
    return Generate(model="run", **{name: value for name, value in fields.items() if value != ()})


def _messages(system: str | None, asked: str) -> tuple[dict[str, str], ...]:
    before = () if system is None else ({"role": "system", "content": system},)
    return (*before, {"role": "user", "content": asked})


def _open(
    model: str, data: Path | None, dtype: WeightType | None, threads: int | None, device: str
) -> Opened:
    where = find_model(model, data_dir(data).root)
    return open_model(where, Choice(dtype=dtype, threads=threads, device=device))


def _wish(job: Generate, max_tokens: int | None) -> "Wish":
    from ops.run.session import Wish
    from tensor_llm.sampling import Sampling

    seed = secrets.randbits(_SEED_BITS) if job.seed is None else job.seed
    sampling = Sampling(temperature=job.temperature, top_k=job.top_k, top_p=job.top_p, seed=seed)
    return Wish(max_tokens=max_tokens, sampling=sampling, stop=job.stop)


def _answer(
    opened: Opened,
    tokens: list[int],
    tokenize_ms: float,
    job: Generate,
    max_tokens: int | None,
    *,
    json: bool,
) -> None:
    from ops.run import outcome
    from ops.run.session import Session, tokens_left

    # no larger a cache than the answer can need
    left = tokens_left(len(tokens), max_tokens, opened.model.config.context)
    needed = len(tokens) + left
    session = Session(opened, min(needed, room_tokens(opened)) if max_tokens is None else needed)
    wish = _wish(job, max_tokens)
    show = (lambda _: None) if json else outcome.show
    answer = session.answer(tokens, wish, tokenize_ms=tokenize_ms, show=show)
    session.close()
    if json:
        sampled = job.temperature > 0
        outcome.answer_json(opened, answer, wish.sampling.seed if sampled else None)
    else:
        outcome.tell_answer(opened, answer)


def _talk(opened: Opened, job: Generate, max_tokens: int | None, system: str | None) -> None:
    from ops.run import outcome
    from ops.run.conversation import converse
    from ops.run.prompts import message_tokens
    from ops.run.session import Answer, Session

    session, wish = Session(opened, room_tokens(opened)), _wish(job, max_tokens)
    outcome.remark(opened.figures.words())

    def reply(messages: Any, stopped: Any) -> Answer:
        tokens, tokenize_ms = message_tokens(opened, messages)
        answer = session.answer(
            tokens, wish, tokenize_ms=tokenize_ms, show=outcome.show, stopped=stopped
        )
        outcome.show("\n")
        outcome.remark(answer.figures.words())
        return answer

    try:
        converse(reply, system, say=output.line)
    finally:
        outcome.tell_peak()
        session.close()
