"""A model's tokenizer and template, as planning a replay needs them. No weights."""

from __future__ import annotations

from typing import Any

from ..engine.options import ThinkingOptions
from ..engine.prompts import Prompt, PromptRenderer
from ..engine.recorded import ReplyIds
from .jobs import Job
from .synthetic import SyntheticIds


class Prompts:
    """Renders jobs. `ends` are the ids that end an answer, `date` (ISO) the day that a template may name."""

    def __init__(self, renderer: PromptRenderer, tokenizer: Any, thinking: ThinkingOptions, date: str) -> None:
        self._renderer = renderer
        self._tokenizer = tokenizer
        self._thinking = thinking
        self._date = date
        self.synthetic = SyntheticIds(len(tokenizer), renderer.encoder.control.id_set)
        self.ends = frozenset(int(one) for one in tokenizer.eos_token_ids) | frozenset(renderer.turn_end_ids)

    @property
    def drops_reasoning(self) -> bool:
        """Whether the template leaves an answer's reasoning out once a user message follows."""
        return self._renderer.drops_reasoning(self._thinking)

    def render(self, job: Job) -> Prompt:
        """The prompt of a job. Raises TemplateError."""
        if job.hash_ids:
            return Prompt(self.synthetic.prompt(job), "", (), "", (), reasoning_open=False)
        return self._renderer.render(job.messages, thinking=self._thinking, tools=job.tools, date=self._date)

    def reply(self, job: Job, prompt: Prompt) -> ReplyIds:
        """The ids of its recorded answer, none if there is none. Raises TemplateError."""
        if job.hash_ids:
            return ReplyIds(self.synthetic.reply(job))
        if job.answer is None:
            return ReplyIds(())
        return self._renderer.reply(
            prompt, job.messages, job.answer, self.ends, thinking=self._thinking, tools=job.tools, date=self._date
        )

    def encode(self, text: str) -> list[int]:
        """The ids of ordinary text."""
        return list(self._renderer.encoder.between(None, text, ""))

    def text(self, one: int) -> str:
        """What one id says."""
        return self._renderer.encoder.decode([one])
