"""The page of a model on the hub: what its configuration says, how to use it, and what its owner adds."""

from __future__ import annotations

import json

from ..config import Bitrates, CodecConfig

TAGS = ("audio", "speech", "audio-codec", "speech-tokenizer", "variable-frame-rate", "dtm-codec")


def model_card(
    config: CodecConfig,
    repo_id: str,
    *,
    model_id: str,
    parameters: int,
    bitrates: Bitrates | None,
    has_statistics: bool,
    license: str | None,
    notes: str,
) -> str:
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
            *_facts(config, model_id, parameters, bitrates, has_statistics),
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
            f'inputs = extract(audio, sampling_rate={config.sample_rate}, return_tensors="pt")',
            "encoded = model.encode(**inputs)  # .audio_codes, .durations, .code_lengths",
            "```",
            "",
        ]
    )


def _facts(
    config: CodecConfig, model_id: str, parameters: int, bitrates: Bitrates | None, has_statistics: bool
) -> list[str]:
    quantizer = config.quantizer
    token_rate = config.frame_rate / config.stride if config.is_fixed_rate else config.frame_rate * config.keep_ratio
    kind = "fixed" if config.is_fixed_rate else "variable"
    rows = {
        "model id": f"`{model_id}`",
        "parameters": f"{parameters / 1e6:.1f} M",
        "audio": f"{config.sample_rate} Hz, mono",
        "steps": f"{config.frame_rate:g} a second",
        "tokens": f"{token_rate:g} a second on average, {kind} rate (selector `{config.selector.name}`)",
        "codebook": f"{quantizer.codebook_size} codes ({quantizer.kind}), {quantizer.token_bits} bits a token",
        "trained for": "unknown rates" if bitrates is None else f"{bitrates[0]:.0f} to {bitrates[1]:.0f} bits a second",
        "compact files": "with token statistics" if has_statistics else "without token statistics",
    }
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
