"""The table of families in docs/images.md, from the small models themselves: `python tests/support/vision_table.py`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HEAD = (
    "| family | processor | positions in a picture | seen | layers | also fed | the bits after a restore |",
    "|---|---|---|---|---|---|---|",
)


def lines(work: Path) -> list[str]:
    """The table, one line each; makes and loads every family below `work`."""
    from mlxchat.cache.layers import Layout
    from mlxchat.engine.fresh_caches import FreshCaches
    from mlxchat.engine.image_reader import ImageReader
    from mlxchat.engine.image_spans import ImageSpan
    from mlxchat.engine.loader import load
    from mlxchat.engine.messages import ImagePart
    from mlxchat.engine.models import ModelFolder
    from mlxchat.engine.prompts import PromptRenderer
    from mlxchat.engine.vision_features import FeatureCache
    from mlxchat.engine.vision_model import VisionModel, placeholder_id
    from support import vision_models
    from support.vision_rig import NOT_ROW_INVARIANT

    picture = vision_models.save_picture(work / "a.png", 160, 120)
    found = list(HEAD)
    for family in vision_models.FAMILIES:
        model = load(ModelFolder(family, vision_models.make(work / family, family), "folder"))
        reader = ImageReader(model.processor, model.tokenizer, placeholder_id(model.model))
        PromptRenderer(model.tokenizer, images=reader)
        vision = VisionModel(model.model, reader, FeatureCache())
        image = reader.prepare(ImagePart(str(picture)))
        features = vision.encode(ImageSpan(0, len(image.ids), image, str(picture)))
        also = ["deepstack"] * bool(features.deepstack) + ["per-layer inputs"] * (features.per_layer is not None)
        layout = Layout.of(FreshCaches(model.model.language_model, None, vision.whole)())
        kinds = [group.name.partition(":")[0] for group in layout.rows] + ["recurrent"] * (layout.states is not None)
        cells = (
            family,
            type(model.processor).__name__,
            "time, height, width" if image.grid is not None else "one after another",
            "whole, in one call" if vision.whole else "from left to right",
            ", ".join(kinds),
            ", ".join(also) or "–",
            "equal, for equal calls before it" if family in NOT_ROW_INVARIANT else "equal",
        )
        found.append("| " + " | ".join(cells) + " |")
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    with tempfile.TemporaryDirectory() as name:
        print("\n".join(lines(Path(name))))
