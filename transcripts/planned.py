"""What a plan says of each request: its prompt, what of it was fed before, where it parts from what was fed last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..engine.stats import Divergence
from .jobs import Job

Outcome = Literal["run", "skipped_too_long", "no_request", "failed"]


@dataclass(frozen=True)
class Difference:
    """Where a prompt parts from what its conversation fed last: the tokens there, None past an end."""

    position: int
    was: str | None
    now: str | None


@dataclass(frozen=True)
class Planned:
    """One job and its numbers, in tokens.

    why                   what stands against running it, "" if nothing
    common_prefix_tokens  of the prompt, with everything fed earlier
    ideal_tokens          what a perfect cache of this model's layers would reuse of it
    again_tokens          about how many are prefilled though this conversation had sent them before
    mismatched_tokens     at the prompt's end, that the rendering through the recorded answer doesn't have
    padded_tokens         synthetic ones in the prompt
    scaffold_lost         whether the prompt lacks the thought that the conversation's last prompt had opened
    tools_changed         whether the tools are others than in the conversation's last request
    """

    job: Job
    outcome: Outcome = "run"
    why: str = ""
    prompt_tokens: int = 0
    answer_tokens: int = 0
    common_prefix_tokens: int = 0
    ideal_tokens: int = 0
    again_tokens: int = 0
    mismatched_tokens: int = 0
    padded_tokens: int = 0
    divergence: Divergence = "first"
    difference: Difference | None = None
    scaffold_lost: bool = False
    tools_changed: bool = False

    @property
    def new_tokens(self) -> int:
        """What even a perfect cache has to prefill."""
        return self.prompt_tokens - self.ideal_tokens

    def ttft_ms(self, tokens_per_s: float) -> float:
        """Milliseconds to the first token at a prefill rate, restoring taken as free."""
        return 1000 * self.new_tokens / tokens_per_s
