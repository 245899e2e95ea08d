"""The page of a model on the hub: what its configuration says, how to use it, and what its owner adds."""

from __future__ import annotations

import json

from .hub import LoadedModel
from .weights import num_parameters

TAGS = ("audio", "speech", "audio-codec", "speech-tokenizer", "variable-frame-rate", "dtm-codec")


def model_card(model: LoadedModel, repo_id: str, *, license: str | None, notes: str) -> str:
    """Markdown with the metadata that the hub reads at its top."""
    metadata = [f"license: {json.dumps(license)}"] if license else []
    metadata += ["library_name: dtm-codec", "pipeline_tag: audio-to-audio", "tags:", *(f"- {tag}" for tag in TAGS)]
    return "\n".join(
        [
            "---",
            *metadata,
            "---",
            "",
            f"# {repo_id.partition('/')[2]}",
            "",
            "A DTM-Codec: a neural speech codec whose tokens come where speech changes.",
            *(["", notes.strip()] if notes.strip() else []),
            "",
            *_facts(model),
            "",
            "## Use",
            "",
            "```python",
            "from dtm_codec import DTMCodec",
            "",
            f'codec = DTMCodec.from_pretrained("{repo_id}")',
            "encoded = codec.encode(audio, sample_rate)  # .tokens, .durations, .times, .bits",
            "audio = codec.decode(encoded)",
            "```",
            "",
            "Through transformers, with the package `dtm-codec` installed:",
            "",
            "```python",
            "from transformers import AutoFeatureExtractor, AutoModel",
            "",
            f'model = AutoModel.from_pretrained("{repo_id}", trust_remote_code=True)',
            f'extract = AutoFeatureExtractor.from_pretrained("{repo_id}")',
            f'inputs = extract(audio, sampling_rate={model.config.sample_rate}, return_tensors="pt")',
            "encoded = model.encode(**inputs)  # .audio_codes, .durations, .code_lengths",
            "```",
            "",
        ]
    )


def _facts(model: LoadedModel) -> list[str]:
    config, bitrates = model.config, model.bitrates
    quantizer = config.quantizer
    token_rate = config.frame_rate / config.stride if config.is_fixed_rate else config.frame_rate * config.keep_ratio
    kind = "fixed" if config.is_fixed_rate else "variable"
    rows = {
        "model id": f"`{model.model_id}`",
        "parameters": f"{num_parameters(config) / 1e6:.1f} M",
        "audio": f"{config.sample_rate} Hz, mono",
        "steps": f"{config.frame_rate:g} a second",
        "tokens": f"{token_rate:g} a second on average, {kind} rate (selector `{config.selector.name}`)",
        "codebook": f"{quantizer.codebook_size} codes ({quantizer.kind}), {quantizer.token_bits} bits a token",
        "trained for": "unknown rates" if bitrates is None else f"{bitrates[0]:.0f} to {bitrates[1]:.0f} bits a second",
        "compact files": "without token statistics" if model.token_model is None else "with token statistics",
    }
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
