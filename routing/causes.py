"""What keeps a job from starting in a pool, in words. Owns these words only."""

from routing.placement import Cause

WORDS = {
    Cause.FREE: "a slot is free",
    Cause.FULL: "all slots are taken",
    Cause.SPARE: "what is free there is kept for more urgent work",
    Cause.KV: "too little KV cache is free",
    Cause.MEMORY: "too little memory is free",
    Cause.FENCED: "what is free is reserved for a job before it",
    Cause.TRAINING: "another training runs there",
    Cause.ALONE: "the job must run alone",
    Cause.READING: "prompts sent there before it are still to be read",
}
