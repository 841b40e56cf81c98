"""What surrounds the model calls of a request: rendering before, the message and the numbers after."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import mlx.core as mx

from ..errors import ContextExceeded, ModelUnsupported
from .events import Notice, ToolCallDone, TurnDone
from .feeding import Feeding
from .loader import LoadedModel
from .markers import MarkerParser
from .messages import Generated, ImagePart, Message, TextPart
from .preview import Previewer
from .prompts import Prompt, PromptRenderer
from .recorded import Recorded, ReplyIds
from .request import Draw, Request, Run
from .reuse import Reuse
from .sampling import OwnRandom, ThinkFloor, build, resolve
from .scripted import Script
from .sequence import Sequence
from .stats import RequestStats, rate
from .switches import Switches
from .tool_calls import reply_of
from .vision_kind import sees_no_pictures
from .vision_model import VisionModel

if TYPE_CHECKING:
    from .constraint import ConstraintMaker


class TurnBuilder:
    """Turns a request into a Run and a finished Run into its message, by one model's tokenizer and template."""

    def __init__(
        self,
        model: LoadedModel,
        renderer: PromptRenderer,
        switches: Switches,
        script: Script | None,
        vision: VisionModel | None = None,
        parallel: int = 1,
    ) -> None:
        self._parallel = parallel
        self.whole_pictures = vision is not None and vision.whole
        self.preview = Previewer(renderer, model.context_limit, self.whole_pictures)
        self._vision = vision
        self.end_ids = model.eos_token_ids | frozenset(renderer.turn_end_ids)
        self._model = model
        self._renderer = renderer
        self._markers = renderer.markers
        self._switches = switches
        self._script = script

    # -- before ------------------------------------------------------------------------------------------------

    def start(self, request: Request, sequence: Sequence, reuse: Reuse) -> Run:
        """Render the messages. Raises TemplateError, or ContextExceeded before anything has been touched."""
        options = request.options
        prompt = self._prompt(request, sequence)
        limit = min(self._model.context_limit, options.max_context or self._model.context_limit)
        if len(prompt.ids) >= limit:
            raise ContextExceeded(
                f"the prompt has {len(prompt.ids):,} tokens, the model's context is {limit:,}",
                "make it shorter, or begin a new chat",
            )
        wanted = options.sampling.max_tokens
        if options.whole_reply and wanted is not None and len(prompt.ids) + wanted > limit:
            raise ContextExceeded(
                f"the prompt has {len(prompt.ids):,} tokens, and {wanted:,} of reply don't fit behind it: "
                f"the model's context is {limit:,}",
                f"a reply of {limit - len(prompt.ids):,} would fit",
            )
        parser = MarkerParser(self._markers, reasoning_open=prompt.reasoning_open)
        draw = self._draw(request, prompt)
        run = Run(request, prompt, sequence, reuse, draw, parser, self._model.tokenizer.detokenizer)
        run.max_tokens = min(options.sampling.max_tokens or limit, limit - len(prompt.ids))
        if request.recorded is not None:
            run.feeding = self._feeding(request, request.recorded, sequence, prompt, limit - len(prompt.ids))
        return run

    def _prompt(self, request: Request, sequence: Sequence) -> Prompt:
        if request.ids is not None:
            return Prompt(request.ids, "", (), "", (), reasoning_open=False)
        self._check_pictures(request)
        options = request.options
        return self._renderer.render(
            request.messages, thinking=options.thinking, tools=options.tools, date=sequence.date
        )

    def forget_pixels(self) -> None:
        """At the end of a request: pictures whose features or KV were there already need no pixels."""
        if self._renderer.images is not None:
            self._renderer.images.forget_arrays()
        if self._vision is not None:
            self._vision.forget_apart()

    def forget_pictures(self, conversation: str) -> None:
        """The conversation is deleted: let go of what the vision tower made for it alone."""
        if self._vision is not None:
            self._vision.features.forget(conversation)

    def _check_pictures(self, request: Request) -> None:
        if self._renderer.images is None and any(
            isinstance(part, ImagePart) for message in request.messages for part in message.content
        ):
            if self._model.is_vision:
                cause = f"{self._model.name}'s picture processor can't be loaded: {self._model.no_processor}"
                raise ModelUnsupported(cause, "ask without pictures, or use another model")
            raise sees_no_pictures(self._model.name)

    def _feeding(self, request: Request, recorded: Recorded, sequence: Sequence, prompt: Prompt, room: int) -> Feeding:
        options = request.options
        if recorded.ids is not None:
            return Feeding(ReplyIds(recorded.ids), recorded.feed, room)
        reply = self._renderer.reply(
            prompt,
            request.messages,
            recorded.answer,
            self.end_ids,
            thinking=options.thinking,
            tools=options.tools,
            date=sequence.date,
        )
        return Feeding(reply, recorded.feed, room)

    def _draw(self, request: Request, prompt: Prompt) -> Draw:
        sampling = request.options.sampling
        sampler, processors = build(sampling, self._model.generation_config)
        own = None
        if sampling.seed is not None and self._parallel > 1:
            if resolve(sampling, self._model.generation_config)["temp"] > 0:
                own = OwnRandom(sampling.seed)
        elif sampling.seed is not None:
            mx.random.seed(sampling.seed % (1 << 64))  # MLX takes 64 bits
        if self._script is not None and request.recorded is None and not request.uncached:
            return Draw(self._script.sampler(), processors)
        if self._switches.think_min and prompt.reasoning_open:
            processors = [*processors, ThinkFloor(self._floor_ids, self._switches.think_min)]
        if (schema := request.options.schema) is not None and request.recorded is None:
            may_think = request.options.thinking.enabled is not False
            processors = [
                *processors,
                self._constraints.make(schema, reasoning_open=prompt.reasoning_open, may_think=may_think),
            ]
        return Draw(sampler, processors, own)

    @cached_property
    def _constraints(self) -> ConstraintMaker:
        from .constraint import ConstraintMaker  # few chats need it, and its library takes a moment

        return ConstraintMaker.of(self._model.tokenizer, self._markers, self.end_ids, self._model.name)

    @cached_property
    def _floor_ids(self) -> list[int]:
        """The end tokens, and every token that holds the first character of the closing marker."""
        tokenizer, close = self._model.tokenizer, self._renderer.close_ids
        if len(close) == 1:
            return [*self.end_ids, *close]
        start = self._markers.close[:1]
        return [*self.end_ids, *(i for i in range(len(tokenizer)) if start in tokenizer.decode([i]))]

    def note_prompt(self, run: Run) -> None:
        """Once the sequence's old position is no longer needed: where the next prompt may part from this one."""
        run.sequence.system_end = max(run.prompt.positions("system_end"), default=0)
        run.sequence.stable = max(run.prompt.positions("stable_user"), default=len(run.prompt.ids))
        length = len(run.prompt.ids)
        run.sequence.scaffold = (length - len(run.prompt.scaffold_ids), length)
        run.sequence.drops_reply = False

    @contextmanager
    def counting_pictures(self, stats: RequestStats) -> Iterator[None]:
        """Around a call that prefills: what the vision tower had to do for it."""
        vision = self._vision
        before = vision.work if vision is not None else (0, 0)
        yield
        if vision is not None:
            stats.images_encoded += vision.work[0] - before[0]
            stats.image_features_reused += vision.work[1] - before[1]

    # -- during ------------------------------------------------------------------------------------------------

    def close_at_budget(self, run: Run) -> None:
        """When the reasoning has used its budget, feed the closing marker in place of sampled ids.

        A model that opens another thought after that has it closed at once.
        """
        budget = run.request.options.thinking.budget
        if budget is not None and run.thinking and not run.forced and run.stats.reasoning_tokens >= budget:
            run.forced.extend(self._renderer.budget_close_ids)

    def will_drop(self, run: Run) -> bool:
        """Whether the template will drop part of this reply once another user message follows."""
        if not (run.thought or run.prompt.scaffold_ids):
            return False
        return self._renderer.drops_reasoning(run.request.options.thinking)

    # -- after -------------------------------------------------------------------------------------------------

    def finish(self, run: Run) -> None:
        """Make the message, note it on the sequence, and fill in the numbers."""
        run.message = self._message(run)
        run.sequence.messages = (*run.request.messages, run.message)
        run.sequence.options = run.request.options
        # Stopped before its first word, the request has fed nothing but its prompt, which is worth keeping.
        run.sequence.drops_reply = self.will_drop(run) and bool(run.ids) and not run.message.tool_calls
        stats, now = run.stats, time.perf_counter()
        prefill_end = run.prefill_ended or now
        stats.prefill_ms = (prefill_end - run.prefill_started) * 1000
        stats.prefill_tokens_per_s = rate(stats.prefill_tokens, stats.prefill_ms)
        stats.ttft_ms = ((run.first_token_at or now) - run.request.started) * 1000
        stats.decode_ms = (now - run.prefill_ended) * 1000 if run.prefill_ended else 0.0
        stats.decode_tokens_per_s = rate(stats.completion_tokens, stats.decode_ms)
        stats.context_tokens = stats.prompt_tokens + stats.completion_tokens
        stats.context_limit = self._model.context_limit
        stats.peak_memory_bytes = mx.get_peak_memory()

    def _message(self, run: Run) -> Message:
        """The reply in parts, or as recorded; a tool call that can't be read stays in the answer as text."""
        prompt = run.prompt
        generated = Generated(prompt.scaffold_text, prompt.scaffold_ids, tuple(run.ids), run.answer_start)
        if run.request.recorded is not None:
            stopped = run.finish == "interrupted"
            return replace(run.request.recorded.answer, generated=generated, interrupted=stopped)
        reply = reply_of(run.segments, self._renderer.call_reader(run.request.options.tools))
        for notice in reply.notices:
            run.request.events.put(Notice(notice))
        return Message(
            "assistant",
            (TextPart(reply.text),) if reply.text else (),
            reasoning=reply.reasoning or None,
            tool_calls=reply.calls,
            generated=generated,
            interrupted=run.finish == "interrupted",
        )

    def deliver(self, run: Run) -> None:
        """Tell whoever asked."""
        assert run.message is not None
        assert run.finish is not None
        for call in run.message.tool_calls:
            run.request.events.put(ToolCallDone(call))
        run.request.events.put(TurnDone(run.message, run.finish, run.stats))
