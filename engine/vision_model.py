"""A model of mlx-vlm, called as the engine calls any model: some ids at some position, with the pictures in them.

Nothing of a conversation is left on the model: positions are handed over with every call, pictures come with the
sequence, and masks know the pictures of the one call that is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from ..cache.picture_mask import mask_pictures
from .image_reader import ImageReader
from .image_spans import ImageSpan, overlapping, rope_positions
from .vision_features import FeatureCache, ImageFeatures


class VisionModel:
    """Engine thread only.

    model      mlx-vlm's module; its `language_model` owns the caches
    features   what its vision tower made so far
    reader     lays pictures out and gives what the vision tower takes; None if the processor couldn't be loaded
    between    is called after each picture of a call has been looked at
    whole      whether a picture must be fed by one call: its positions see each other, later ones too
    """

    def __init__(self, model: Any, reader: ImageReader | None, features: FeatureCache) -> None:
        self.reader = reader
        self.features = features
        self.between: Callable[[], object] | None = None
        self._apart = FeatureCache(most_bytes=0)
        self.whole = sees_whole_pictures(model)
        self._model = model
        self._several_dimensions = hasattr(model.language_model, "get_rope_index")

    @property
    def work(self) -> tuple[int, int]:
        """How many pictures were encoded so far, and how many were fed that didn't need to be."""
        return self.features.encoded + self._apart.encoded, self.features.reused + self._apart.reused

    def forget_apart(self) -> None:
        """Let go of what a run that leaves nothing behind has made."""
        self._apart.clear()

    def __call__(
        self, ids: mx.array, caches: list[Any], start: int, spans: Sequence[ImageSpan], user: str | None = ""
    ) -> mx.array:
        """Feed `ids` (uint32 [S]) at position `start`; lazy logits [1, S, vocabulary].

        spans    all pictures of the sequence, those before `start` too: positions count on from them
        user     the conversation; None for a run that finds nothing and leaves nothing behind
        """
        end = start + ids.size
        met = overlapping(spans, start, end)
        inputs: dict[str, Any] = self._embedded(ids, start, met, user) if met else {}
        if self._several_dimensions:
            inputs["position_ids"] = mx.array(rope_positions(spans, start, end)[:, None, :])
            self._forget_positions()
        with mask_pictures(caches, [(span.start, span.end) for span in met] if self.whole else []):
            logits: mx.array = self._model.language_model(ids[None], cache=caches, **inputs).logits
        return logits

    def together(self, ids: mx.array, caches: list[Any], places: Sequence[tuple[Sequence[ImageSpan], int]]) -> mx.array:
        """Feed one id of text to each of several sequences; lazy logits [sequences, 1, vocabulary].

        ids      uint32 [sequences, 1]
        places   of each sequence its pictures, all before its end, and where it ends
        """
        inputs: dict[str, Any] = {}
        if self._several_dimensions:
            rows = [rope_positions(spans, start, start + 1) for spans, start in places]
            inputs["position_ids"] = mx.array(np.stack(rows, axis=1))
            self._forget_positions()
        logits: mx.array = self._model.language_model(ids, cache=caches, **inputs).logits
        return logits

    def _forget_positions(self) -> None:
        """What the library keeps of the last conversation on the module; all it needs is given with each call."""
        language = self._model.language_model
        language._rope_deltas = language._position_ids = None

    def _embedded(self, ids: mx.array, start: int, spans: list[ImageSpan], user: str | None) -> dict[str, Any]:
        """The call's inputs with the pictures' rows in their places."""
        text = self._model.get_input_embeddings(ids[None], None)
        embeds, per_layer = text.inputs_embeds, text.per_layer_inputs
        deepstack: list[list[mx.array]] = []
        visual = np.zeros(ids.size, np.bool_)
        for span in spans:
            low, high = max(start, span.start), min(start + ids.size, span.end)
            here, rows = slice(low - start, high - start), slice(low - span.start, high - span.start)
            encode = partial(self.encode, span)
            kept = self.features if user is not None else self._apart
            features = kept.get(span.digest, encode, user or "", again=start > span.start)
            if self.between is not None:
                self.between()
            embeds[:, here] = features.embeds[:, rows]
            if features.per_layer is not None:
                per_layer[:, here] = features.per_layer[:, rows]
            placeholders = np.array(span.image.ids) == span.image.placeholder
            visual[here] = placeholders[rows]
            first = int(placeholders[: rows.start].sum())
            count = int(placeholders[rows].sum())
            deepstack.append([layer[first : first + count] for layer in features.deepstack])
        inputs: dict[str, Any] = {"inputs_embeds": embeds}
        if per_layer is not None:
            inputs["per_layer_inputs"] = per_layer
        if any(deepstack):
            inputs["visual_pos_masks"] = mx.array(visual[None])
            inputs["deepstack_visual_embeds"] = [mx.concatenate(list(layer)) for layer in zip(*deepstack, strict=True)]
        return inputs

    def encode(self, span: ImageSpan) -> ImageFeatures:
        """Run the vision tower on one picture, and embed its span. Raises what the reader's `arrays` raises."""
        assert self.reader is not None
        fields = self.reader.arrays(span.digest, span.source)
        ids = mx.array(span.image.ids, mx.uint32)[None]
        made = self._model.get_input_embeddings(ids, mask=mx.ones_like(ids), **fields)
        deepstack = made.deepstack_visual_embeds
        features = ImageFeatures(
            made.inputs_embeds, made.per_layer_inputs, tuple(deepstack) if deepstack is not None else ()
        )
        mx.eval(features.arrays)
        return features


def placeholder_id(model: Any) -> int:
    """The id that a picture's features take the place of."""
    config = model.config
    found = getattr(config, "image_token_id", None)
    return int(config.image_token_index if found is None else found)


def sees_whole_pictures(model: Any) -> bool:
    """Whether a picture's positions attend to each other in both directions: Gemma 3 always, Gemma 4 by its config."""
    text = getattr(model.config, "text_config", None)
    return model.config.model_type == "gemma3" or getattr(text, "use_bidirectional_attention", None) == "vision"
