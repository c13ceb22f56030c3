"""The Celery message that takes a leased job to its pool. Owns its wire form: Celery's task
protocol 2 in kombu's envelope for Redis; knows nothing of jobs beyond their ids.

The lease script pushes it in the same step in which it grants the lease, so it is written here,
complete, instead of being published through kombu."""

import base64
import json
import uuid

TASKS = "noidle."
"""Prefix of the pools' tasks; the rest is the job's kind."""
LEASED_HEADER = "noidle_lease"
"""Tells the pools' transport that a lease brings this message back if it is lost."""


def task_name(kind: str) -> str:
    return f"{TASKS}{kind}"


def lease_message(
    *, job_id: str, kind: str, token: str, queue: str, origin: str, shown: str = "{}"
) -> str:
    """The list entry for `queue`.

    `shown` is what Flower shows as the keyword arguments: what a person wants to know of the
    job, instead of the token. The task stores no result of its own: the board does.
    """
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    body = json.dumps([[], {"lease": token}, embed])
    return json.dumps(
        {
            "body": base64.b64encode(body.encode()).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": _headers(job_id, task_name(kind), origin, shown),
            "properties": {
                "correlation_id": job_id,
                # nobody waits on an RPC queue
                "reply_to": "",
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": queue},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": str(uuid.uuid4()),
            },
        }
    )


def _headers(job_id: str, task: str, origin: str, shown: str) -> dict[str, object]:
    return {
        "lang": "py",
        "task": task,
        "id": job_id,
        "shadow": None,
        "eta": None,
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": job_id,
        "parent_id": None,
        "argsrepr": "()",
        "kwargsrepr": shown,
        "origin": origin,
        "ignore_result": True,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
        LEASED_HEADER: True,
    }
