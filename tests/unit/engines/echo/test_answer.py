"""What an echo says."""

import pytest

from engines.echo.answer import Answer, Reading
from engines.echo.described import Described, JobFault

PROMPT = "the cat sat on the mat and purred"


def start(prompt=PROMPT, seed=1, text="", tokens=(), **job):
    return {
        "job": {"kind": "generate", "model": "echo", "prompt": prompt, "max_tokens": 12, **job},
        "seed": seed,
        "text": text,
        "tokens": tokens,
    }


def say(op):
    """All steps of a run, and its result."""
    answer, steps, result = Answer(op, Described({})), [], None
    while result is None:
        step, result = answer.step()
        steps.append(step)
    return steps, result


def tokens_of(steps):
    return [token for step in steps for token in step["tokens"]]


def test_the_same_prompt_seed_and_position_give_the_same_word():
    assert say(start()) == say(start())
    assert say(start())[1]["text"] != say(start(seed=2))[1]["text"]
    assert say(start())[1]["text"].startswith(say(start(max_tokens=5))[1]["text"])


def talk(*turns, **more):
    op = start(**more)
    del op["job"]["prompt"]
    op["job"]["messages"] = [{"role": role, "content": content} for role, content in turns]
    return op


def test_a_conversation_is_answered_in_its_own_words():
    asked = [("system", "be brief"), ("user", PROMPT)]
    answer = say(talk(*asked))[1]
    assert answer == say(talk(*asked))[1]
    assert answer["text"] != say(talk(asked[1]))[1]["text"]
    assert set(answer["text"].split()) <= set(f"system: be brief user: {PROMPT}".split())
    assert answer["prompt_tokens"] > say(talk(asked[1]))[1]["prompt_tokens"]


def test_a_conversation_over_the_context_is_refused_with_its_field():
    with pytest.raises(JobFault) as refused:
        Answer(talk(("user", "cat " * 50)), Described({"ECHO_CONTEXT": "40"}))
    assert refused.value.error["field"] == "messages"


def test_the_last_message_can_ask_to_fail():
    op = talk(("user", PROMPT), ("assistant", "yes"), ("user", "!fail 3"))
    answer = Answer(op, Described({}))
    for _ in range(3):
        answer.step()
    with pytest.raises(JobFault):
        answer.step()


@pytest.mark.parametrize("broken_after", [0, 1, 5, 11])
def test_an_answer_tells_how_likely_each_of_its_tokens_was(broken_after):
    steps, whole = say(start(logprobs=True))
    assert len(whole["logprobs"]) == len(whole["tokens"])
    before = steps[:broken_after]
    text, tokens = "".join(step["text"] for step in before), tokens_of(before)
    assert say(start(logprobs=True, text=text, tokens=tokens))[1]["logprobs"] == whole["logprobs"]
    assert say(start())[1]["logprobs"] is None


def test_the_steps_joined_are_the_result():
    steps, result = say(start(stop=["never"]))
    assert "".join(step["text"] for step in steps) == result["text"]
    assert tokens_of(steps) == result["tokens"]
    assert (result["finish_reason"], len(result["tokens"])) == ("length", 12)


@pytest.mark.parametrize("stop", [[], ["sat on"], ["mat the"], ["the "], ["zzz", "on the mat"]])
@pytest.mark.parametrize("broken_after", range(13))
def test_a_run_that_resumes_anywhere_says_what_an_undisturbed_one_says(stop, broken_after):
    steps, whole = say(start(stop=stop))
    before = steps[:broken_after]
    text = "".join(step["text"] for step in before)
    tokens = tokens_of(before)
    _, rest = say(start(stop=stop, text=text, tokens=tokens))
    assert text + rest["text"] == whole["text"]
    assert tokens + rest["tokens"] == whole["tokens"]
    assert rest["finish_reason"] == whole["finish_reason"]


def test_text_that_could_begin_a_stop_string_is_not_emitted():
    text = say(start())[1]["text"]
    stop = text.strip()
    steps, result = say(start(stop=[stop]))
    assert "".join(step["text"] for step in steps) == ""
    assert result["finish_reason"] == "stop"


def test_a_prompt_over_the_context_is_refused_with_its_field():
    with pytest.raises(JobFault) as refused:
        Answer(start("x " * 40), Described({"ECHO_CONTEXT": "50"}))
    assert refused.value.error["field"] == "prompt"
    assert "38 tokens" in refused.value.error["allowed"]


def test_an_unknown_model_is_refused_with_its_field():
    with pytest.raises(JobFault) as refused:
        Answer(start(model="nobody"), Described({}))
    assert refused.value.error["field"] == "model"
    assert "echo" in refused.value.error["allowed"]


def test_a_prompt_can_ask_to_fail_behind_some_tokens():
    answer = Answer(start("!fail 2"), Described({}))
    assert answer.step()[0]["tokens"]
    assert answer.step()[0]["tokens"]
    with pytest.raises(JobFault, match="behind 2 tokens"):
        answer.step()


def test_a_score_has_one_number_for_each_token_but_the_first():
    reading = Reading({"job": {"model": "echo", "text": PROMPT}}, Described({}))
    result = reading.step()[1]
    assert len(result["logprobs"]) == result["prompt_tokens"] - 1
    assert result["perplexity"] > 1
