"""Code that goes into a model folder, so that `transformers` can load it: what it calls remote code.

The two files beside this one are copied as they are. They hold no network: they import this package, and transformers
says so if it is not installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...config import MODEL_TYPE, NESTED

CODE_FILES = ("configuration_dtm_codec.py", "modeling_dtm_codec.py")


def configuration(values: dict[str, Any]) -> dict[str, Any]:
    """config.json of a folder for transformers. values: that of a plain one"""
    configuration_module, modeling_module = (name.removesuffix(".py") for name in CODE_FILES)
    return {
        "model_type": MODEL_TYPE,
        "architectures": ["DTMCodecModel"],
        "auto_map": {
            "AutoConfig": f"{configuration_module}.DTMCodecConfig",
            "AutoModel": f"{modeling_module}.DTMCodecModel",
        },
        NESTED: values,
    }


def preprocessor(sample_rate: int) -> dict[str, Any]:
    """preprocessor_config.json: audio to `input_values` (B, 1, T) and `padding_mask`, by a class of transformers."""
    return {
        "feature_extractor_type": "EncodecFeatureExtractor",
        "feature_size": 1,
        "sampling_rate": sample_rate,
        "padding_value": 0.0,
        "padding_side": "right",
        "return_attention_mask": True,
    }


def code() -> dict[str, bytes]:
    """The files, by name."""
    return {name: Path(__file__).with_name(name).read_bytes() for name in CODE_FILES}
