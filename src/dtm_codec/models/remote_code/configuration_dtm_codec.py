"""Configuration of a DTM-Codec for transformers."""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig

from dtm_codec.config import MODEL_TYPE, CodecConfig, config_values, model_config


class DTMCodecConfig(PretrainedConfig):  # type: ignore[misc]
    model_type = MODEL_TYPE

    def __init__(self, codec: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """codec: fields of `dtm_codec.CodecConfig` that differ from the paper's 50 Hz model"""
        config, bitrates = model_config({} if codec is None else codec)
        self.codec = config_values(config, bitrates)
        super().__init__(**kwargs)

    @property
    def codec_config(self) -> CodecConfig:
        return model_config(self.codec)[0]

    @property
    def sampling_rate(self) -> int:
        return self.codec_config.sample_rate

    @property
    def frame_rate(self) -> float:
        """Steps a second; a token lasts one or more of them."""
        return self.codec_config.frame_rate

    @property
    def codebook_size(self) -> int:
        return self.codec_config.quantizer.codebook_size

    @property
    def num_quantizers(self) -> int:
        return 1
