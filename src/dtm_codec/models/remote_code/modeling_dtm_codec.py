"""A DTM-Codec as transformers expects a codec: padded tensors in and out, names as in EnCodec and Mimi.

    model = AutoModel.from_pretrained(FOLDER, trust_remote_code=True)
    extract = AutoFeatureExtractor.from_pretrained(FOLDER)
    encoded = model.encode(**extract(audio, sampling_rate=16000, return_tensors="pt"), bitrate=800)
    decoded = model.decode(encoded.audio_codes, encoded.durations, encoded.code_lengths, encoded.num_samples)

Unlike theirs, its tokens last one or more steps each: `durations` go with the codes. `model.codec` is the
`dtm_codec.DTMCodec` itself, for files, streams and everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from dtm_codec import DTMCodec, TokenBatch
from dtm_codec.models.hub import download

from .configuration_dtm_codec import DTMCodecConfig

HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "revision", "token")


@dataclass
class DTMCodecOutput(ModelOutput):  # type: ignore[misc]
    audio_codes: Tensor | None = None
    """(B, 1, K_max) int64, -1 after the end"""
    durations: Tensor | None = None
    """(B, K_max) int64, steps that each token lasts, 0 after the end"""
    code_lengths: Tensor | None = None
    """(B,) int64, tokens of each utterance"""
    num_samples: Tensor | None = None
    """(B,) int64, length of the audio"""
    mask: Tensor | None = None
    """(B, N_max) bool, steps that have a token"""
    audio_values: Tensor | None = None
    """(B, 1, T_max) float32, zeros after the end"""
    padding_mask: Tensor | None = None
    """(B, T_max) bool, False after the end"""


class DTMCodecModel(PreTrainedModel):  # type: ignore[misc]
    config_class = DTMCodecConfig
    base_model_prefix = "network"
    main_input_name = "input_values"

    def __init__(self, config: DTMCodecConfig, codec: DTMCodec | None = None) -> None:
        """codec: a trained one; without it, one with random weights"""
        super().__init__(config)
        self.codec = DTMCodec(config.codec_config) if codec is None else codec
        self.network = self.codec.network
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        """The network has initialized itself."""

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | PathLike[str],
        *args: Any,
        config: DTMCodecConfig | None = None,
        device_map: str | torch.device | None = None,
        dtype: Any = None,
        torch_dtype: Any = None,
        **kwargs: Any,
    ) -> DTMCodecModel:
        """With the checks of `DTMCodec.from_pretrained`: what does not fit is named, and nothing is left random."""
        wanted = torch_dtype if dtype is None else dtype
        if wanted not in (None, "auto", "float32", torch.float32):
            raise ValueError(f"dtype = {wanted}; allowed: float32, which codes and files depend on")
        if device_map is not None and not isinstance(device_map, str | torch.device):
            raise ValueError(f"device_map = {device_map!r}; allowed: one device")
        name = pretrained_model_name_or_path
        options = {key: kwargs[key] for key in HUB_OPTIONS if kwargs.get(key) is not None}
        folder = Path(name) if Path(name).is_dir() else download(str(name), **options)
        device = "cpu" if device_map is None else str(device_map)
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        codec = DTMCodec.from_pretrained(folder, device)
        if config is None:
            config = DTMCodecConfig.from_pretrained(folder)
        model = cls(config, codec)
        model.eval()
        return model

    def save_pretrained(self, save_directory: str | PathLike[str], **kwargs: Any) -> None:
        """The folder that it came from: transformers and `DTMCodec.from_pretrained` both load it."""
        self.codec.save_pretrained(save_directory, transformers=True)

    def encode(
        self,
        input_values: Tensor,
        padding_mask: Tensor | None = None,
        *,
        bitrate: float | None = None,
        token_rate: float | None = None,
        tau: float | None = None,
    ) -> DTMCodecOutput:
        """Speech to tokens, each utterance as if it were alone.

        input_values: (B, T) or (B, 1, T) at `config.sampling_rate`. padding_mask: (B, T), 1 where there is audio.
        bitrate, token_rate, tau: at most one; without any, the tau of training.
        """
        lengths = None if padding_mask is None else padding_mask.long().flatten(1).sum(1)
        batch = self.codec.encode_batch(input_values, lengths, bitrate=bitrate, token_rate=token_rate, tau=tau)
        return DTMCodecOutput(
            audio_codes=batch.codes[:, None],
            durations=batch.durations,
            code_lengths=batch.lengths,
            num_samples=batch.num_samples,
            mask=batch.mask,
        )

    def decode(
        self,
        audio_codes: Tensor,
        durations: Tensor,
        code_lengths: Tensor | None = None,
        num_samples: Tensor | None = None,
    ) -> DTMCodecOutput:
        """Tokens to speech.

        audio_codes: (B, 1, K) or (B, K). durations: (B, K). code_lengths: (B,); without it, durations of 0 end a row.
        num_samples: (B,); without it, the last step of each is full.
        """
        codes = audio_codes[:, 0] if audio_codes.dim() == 3 else audio_codes
        lengths = (durations > 0).sum(1) if code_lengths is None else code_lengths
        codec = self.codec
        if num_samples is None:
            batch = TokenBatch.from_durations(codes, durations, lengths, codec.model_id, codec.layout)
        else:
            batch = TokenBatch(codes, durations, lengths, num_samples, codec.model_id, codec.layout)
        audio, sizes = codec.decode_batch(batch)
        real = torch.arange(audio.shape[-1]) < sizes.cpu()[:, None]
        return DTMCodecOutput(audio_values=audio, padding_mask=real.to(audio.device))

    def forward(self, input_values: Tensor, padding_mask: Tensor | None = None, **rate: Any) -> DTMCodecOutput:
        """There and back. rate: as for `encode`"""
        encoded = self.encode(input_values, padding_mask, **rate)
        assert encoded.audio_codes is not None
        assert encoded.durations is not None
        decoded = self.decode(encoded.audio_codes, encoded.durations, encoded.code_lengths, encoded.num_samples)
        return DTMCodecOutput(**(encoded | decoded))
