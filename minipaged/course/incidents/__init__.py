"""Incidents: ten runs of the engine, each with one fault, which the reader finds from the trace alone.

`minipaged incident 3` shows an incident as an engineer on call sees it: the symptom, a question and the
trace. Each fault is in `memory`, `queueing` or `caching`, next to the function that computes the answer from
the trace.
"""

from __future__ import annotations

from minipaged.course.incidents import caching, memory, queueing
from minipaged.course.incidents.incident import Finding, Incident
from minipaged.errors import CourseError

INCIDENTS = (
    Incident(
        "Since this morning, the pool's usage never falls back to zero, even when no request runs. By noon "
        "new requests have to wait, nothing is in the log, and a restart helps for a few hours.",
        "How many blocks does the engine not count as free after the last step, although no block table "
        "names them?",
        memory.leak,
        memory.find_leak,
    ),
    Incident(
        "A nightly report, which used to take a minute, has not come back since the interactive users got "
        "the new server. Those users are happy, and the pool is never full.",
        "For how many steps does the request that waits longest wait before it is admitted?",
        queueing.starvation,
        queueing.find_starvation,
    ),
    Incident(
        "Every request begins with the same long instructions, and prefix caching is on. Since the last "
        "release of the client, the hit rate is zero.",
        "At which token position (counted from 0) do the prompts of the first two requests first differ?",
        caching.timestamp,
        caching.find_timestamp,
    ),
    Incident(
        "The same memory served far more chats last week. The release notes say only that a setting was "
        "changed to let the kernels read longer runs of memory.",
        "After the step in which most blocks are in use, which share of the slots in used blocks holds no "
        "token, in percent?",
        memory.large_blocks,
        memory.find_large_blocks,
    ),
    Incident(
        "Short questions are usually answered at once. Now and then all of them hang for a while, although "
        "most of the steps' token budget is unused.",
        "Behind which request do the others wait? (Its id.)",
        queueing.whole_prompts,
        queueing.find_whole_prompts,
    ),
    Incident(
        "Requests repeat a few long openings, and the hit rate was good until somebody tidied up the code "
        "that frees blocks. Now it is zero under load, and with little traffic it is as before.",
        "Which block of a freed prompt is evicted first?",
        caching.heads_first,
        caching.find_heads_first,
        caching.HEAD_CHOICES,
    ),
    Incident(
        "The batch limit was raised to serve more users at a time, and fewer tokens a second come out. The "
        "device is busy all the time.",
        "Which share of all computed tokens had been computed before, in percent?",
        memory.thrashing,
        memory.find_thrashing,
    ),
    Incident(
        "All tenants use the same template, and each has its second request answered fast. The first request "
        "of each tenant is slow, although the template was computed for others just before.",
        "Why does the first request of a tenant not hit the template's blocks?",
        caching.salts,
        caching.find_salts,
        caching.SALT_CHOICES,
    ),
    Incident(
        "There is always a queue, and the dashboard shows a pool that is nearly empty. The answers are "
        "short, and each comes as fast as ever once its request runs.",
        "Which share of the pool's blocks is in use at most while a request waits, in percent?",
        memory.idle_pool,
        memory.find_idle_pool,
    ),
    Incident(
        "Every few minutes all chats stall together, and then go on as if nothing had been. The number of "
        "running requests is low in these moments, not high.",
        "Which request holds the most blocks while others wait? (Its id.)",
        memory.wide_beams,
        memory.find_wide_beams,
    ),
)


def incident(number: int) -> Incident:
    """An incident by its number, from 1.

    Raises:
        CourseError: there is no incident of that number.
    """
    if not 1 <= number <= len(INCIDENTS):
        raise CourseError(f"there are incidents 1 to {len(INCIDENTS)}, and no {number}")
    return INCIDENTS[number - 1]


__all__ = ["INCIDENTS", "Finding", "Incident", "incident"]
