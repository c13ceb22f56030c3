"""Whose prompt is read next."""

from engines.echo.described import Described
from engines.echo.loop import Loop

JOB = {"kind": "generate", "model": "echo", "max_tokens": 4}


def test_prompts_are_read_by_class_and_the_shortest_first() -> None:
    loop = Loop(Described({"ECHO_CHUNK_TOKENS": "8", "ECHO_LOAD_S": "0"}))
    loop._loaded.append("echo")
    jobs = {
        "someday": ("batch", 4),
        "long": ("interactive", 30),
        "short": ("interactive", 10),
    }
    for run, (job_class, words) in jobs.items():
        job = JOB | {"class": job_class, "prompt": "word " * words}
        loop._start(run, {"run": run, "job": job, "seed": 1})
    read = []
    while (run := loop._prefill()[0]) is not None:
        read.append(run)
    # pieces of a prompt are words and the spaces between them
    assert read == ["short"] * 3 + ["long"] * 8 + ["someday"]
