"""For a researcher of speech language models: what can be learned about tokens and durations, on one CPU core.

    pip install '.[torch,corpus]'
    python examples/train_language_model.py SPEECH HELD_OUT -o lm [--steps 250]

SPEECH and HELD_OUT are whatever `dtm-codec tokenize` takes, or folders that it wrote. A small causal transformer learns
to predict each code from the codes and durations before it, and then how long the token lasts. The script prints what
held-out speech costs under the model, in bits a token and a second, beside what the compact file spends on the same
utterances: an order-1 model of classes for codes, an adaptive one of the last two spans for the mask. Then it continues
the beginning of held-out utterances and decodes that to audio.

16 384 codes are many for a few hours of speech: most follow most others never. So codes are known to the model by their
vectors in the codebook (embeddings and output begin as functions of these), and a code is predicted in two steps, its
neighbourhood and then which of it. Both are exact, so bits can be compared with those of a file.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from dtm_codec import DTMCodec, Encoded, TokenBatch
from dtm_codec.bitstream.token_coder import TokenModel
from dtm_codec.corpus import TokenDataset, collate, tokenize
from dtm_codec.speech.audio import write_audio

CONTEXT = 512
"""Tokens that the model looks back on: 10 s at 50 a second."""
LONGEST = 32
"""Durations from here on are one class; how far they go beyond it is sent as an Elias gamma code."""


@dataclass(frozen=True)
class Size:
    dim: int = 128
    layers: int = 4
    heads: int = 4
    member_dim: int = 48


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm1, self.norm2 = nn.LayerNorm(size.dim), nn.LayerNorm(size.dim)
        self.qkv, self.out = nn.Linear(size.dim, 3 * size.dim), nn.Linear(size.dim, size.dim)
        self.mlp = nn.Sequential(nn.Linear(size.dim, 4 * size.dim), nn.GELU(), nn.Linear(4 * size.dim, size.dim))

    def forward(self, x: Tensor) -> Tensor:  # (B, K, D)
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (B, H, K, D/H)
        attended = F.scaled_dot_product_attention(_rotated(q), _rotated(k), v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


def _rotated(x: Tensor) -> Tensor:
    """Rotary positions. (..., K, D/H)"""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2])[:, None] * 10_000 ** (-torch.arange(half) / half)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


class LanguageModel(nn.Module):
    """p(code | past) p(duration | code, past), with p(code) = p(neighbourhood) p(code | neighbourhood)."""

    vectors: Tensor
    members: Tensor
    place: Tensor

    def __init__(self, codebook: np.ndarray, size: Size | None = None) -> None:
        super().__init__()
        self.size = size = size or Size()
        codes, features = len(codebook), _features(codebook)
        self.register_buffer("vectors", features)  # (V, F)
        members = neighbourhoods(codebook)
        self.register_buffer("members", members)  # (C, M), -1 where a neighbourhood is one code smaller
        place = torch.empty(codes, 2, dtype=torch.int64)
        place[members[members >= 0]] = (members >= 0).nonzero()
        self.register_buffer("place", place)  # (V, 2) neighbourhood of each code, and which of it
        self.embed_vector, self.embed_code = nn.Linear(features.shape[1], size.dim), nn.Embedding(codes, size.dim)
        self.embed_duration = nn.Embedding(LONGEST + 1, size.dim)
        self.begin = nn.Parameter(torch.zeros(size.dim))
        self.blocks = nn.Sequential(*(Block(size) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.dim)
        self.to_class = nn.Linear(size.dim, len(members))
        self.to_member = nn.Linear(size.dim, size.member_dim)
        self.member_vector = nn.Linear(features.shape[1], size.member_dim, bias=False)
        self.member_code, self.member_bias = nn.Embedding(codes, size.member_dim), nn.Parameter(torch.zeros(codes))
        self.to_duration = nn.Sequential(nn.Linear(2 * size.dim, size.dim), nn.GELU(), nn.Linear(size.dim, LONGEST))
        for table in (self.embed_code, self.member_code):  # at first a code is its vector and nothing else
            nn.init.zeros_(table.weight)
        nn.init.normal_(self.embed_duration.weight, std=0.3)

    def code_embedding(self, codes: Tensor) -> Tensor:
        embedded: Tensor = self.embed_vector(self.vectors[codes]) + self.embed_code(codes)
        return embedded

    def hidden(self, codes: Tensor, durations: Tensor) -> Tensor:
        """What is known before each token, and after the last. (B, K) -> (B, K + 1, D)"""
        embedded = self.code_embedding(codes) + self.embed_duration(durations.clamp(max=LONGEST))
        begin = self.begin.expand(len(codes), 1, -1)
        states: Tensor = self.norm(self.blocks(torch.cat([begin, embedded], 1)))
        return states

    def member_logits(self, hidden: Tensor, classes: Tensor) -> Tensor:
        """hidden: (S, D), classes: (S,) -> (S, M)"""
        table = (self.member_vector(self.vectors) + self.member_code.weight)[self.members]  # (C, M, d)
        order, counts = classes.argsort(stable=True), classes.bincount(minlength=len(self.members))
        slots = torch.empty_like(classes)  # those of one class side by side, so that each class is one matrix product
        slots[order] = torch.arange(len(classes)) - (counts.cumsum(0) - counts)[classes[order]]
        queries = table.new_zeros(len(table), int(counts.max()), table.shape[2])
        queries[classes, slots] = self.to_member(hidden)
        logits = (queries @ table.transpose(1, 2))[classes, slots] + self.member_bias[self.members][classes]
        return logits.masked_fill(self.members[classes] < 0, -math.inf)

    def duration_logits(self, hidden: Tensor, codes: Tensor) -> Tensor:
        logits: Tensor = self.to_duration(torch.cat([hidden, self.code_embedding(codes)], -1))
        return logits

    def nats(self, hidden: Tensor, codes: Tensor, durations: Tensor) -> tuple[Tensor, Tensor]:
        """What codes and durations cost. hidden: (S, D), codes, durations: (S,) -> (S,) each"""
        classes, ranks = self.place[codes].unbind(-1)
        code = F.cross_entropy(self.to_class(hidden), classes, reduction="none")
        code = code + F.cross_entropy(self.member_logits(hidden, classes), ranks, reduction="none")
        kinds = durations.clamp(max=LONGEST) - 1
        duration = F.cross_entropy(self.duration_logits(hidden, codes), kinds, reduction="none")
        beyond = (durations - LONGEST + 1).clamp(min=1)  # 1, 2, ... in the last class
        gamma = 2 * beyond.double().log2().floor() + 1
        return code, duration + (gamma * math.log(2) * (durations >= LONGEST)).float()


def _features(codebook: np.ndarray) -> Tensor:
    """Vectors and products of their parts, so that a softmax over them has Gaussians in it; variance 1. -> (V, F)"""
    vectors = torch.from_numpy(np.asarray(codebook, np.float32))
    rows, columns = torch.triu_indices(vectors.shape[1], vectors.shape[1])
    features = torch.cat([vectors, vectors[:, rows] * vectors[:, columns]], 1)
    return (features - features.mean(0)) / (features.std(0) + 1e-6)


def neighbourhoods(codebook: np.ndarray) -> Tensor:
    """About sqrt(V) neighbourhoods of as many codes each: halved again and again along their longest axis. -> (C, M)"""
    parts = [np.arange(len(codebook))]
    for _ in range(max(1, round(math.log2(len(codebook)) / 2))):
        parts = [half for part in parts for half in _halves(part, codebook)]
    return nn.utils.rnn.pad_sequence([torch.from_numpy(part) for part in parts], batch_first=True, padding_value=-1)


def _halves(part: np.ndarray, codebook: np.ndarray) -> list[np.ndarray]:
    centred = codebook[part] - codebook[part].mean(0)
    axis = np.linalg.svd(centred, full_matrices=False)[2][0]
    return np.array_split(part[np.argsort(centred @ axis, kind="stable")], 2)


# Training


def batches(rows: TokenDataset, tokens: int, seed: int) -> Iterator[list[int]]:
    """Rows of about one length together, up to so many tokens with padding; in another order each time, for ever."""
    lengths = np.minimum([row.encoded.codes.size for row in rows], CONTEXT)
    random = np.random.default_rng(seed)
    while True:
        order = random.permutation(len(lengths))
        for pool in np.array_split(order, max(1, len(order) // 256)):
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            groups, group = [], []
            for row in pool.tolist():
                if group and (len(group) + 1) * lengths[row] > tokens:
                    groups.append(group)
                    group = []
                group.append(row)
            yield from (groups[i] for i in random.permutation(len(groups)))
            yield group


def crop(batch: TokenBatch, random: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """At most CONTEXT tokens of each row. -> codes, durations, which are tokens, (B, K) each"""
    rows = []
    for codes, durations, length in zip(batch.codes, batch.durations, batch.lengths.tolist(), strict=True):
        start = int(random.integers(max(0, length - CONTEXT) + 1))
        rows.append((codes[start : min(length, start + CONTEXT)], durations[start : min(length, start + CONTEXT)]))
    codes, durations = (nn.utils.rnn.pad_sequence(list(x), batch_first=True) for x in zip(*rows, strict=True))
    return codes, durations, durations > 0


def train(model: LanguageModel, rows: TokenDataset, options: argparse.Namespace) -> None:
    decayed = [p for p in model.parameters() if p.dim() > 1]
    groups = [{"params": decayed}, {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, 0.98), weight_decay=0.1)
    random, started, seen = np.random.default_rng(1), time.perf_counter(), 0
    sampler = batches(rows, options.batch_tokens, seed=0)
    spent: list[tuple[float, float]] = []
    for step, batch in zip(range(1, options.steps + 1), DataLoader(rows, batch_sampler=sampler, collate_fn=collate)):  # noqa: B905 (endless)
        warm, left = step / min(100, options.steps), 1 - step / options.steps
        for group in optimizer.param_groups:
            group["lr"] = options.lr * min(1, warm) * (0.02 + 0.98 * left)
        codes, durations, real = crop(batch.tokens, random)
        hidden = model.hidden(codes[:, :-1], durations[:, :-1])
        code, duration = model.nats(hidden[real], codes[real], durations[real])
        optimizer.zero_grad()
        mean_code, mean_duration = code.mean(), duration.mean()
        (mean_code + mean_duration).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        spent.append((mean_code.item(), mean_duration.item()))
        seen += int(real.sum())
        if step % max(1, options.steps // 20) == 0:
            bits = np.mean(spent, 0) / math.log(2)
            minutes = (time.perf_counter() - started) / 60
            print(f"step {step}, {minutes:.1f} min, {seen} tokens: {bits[0]:.2f} + {bits[1]:.2f} bits", flush=True)
            spent = []
            torch.save({"size": asdict(model.size), "weights": model.state_dict()}, options.output / "lm.pt")


# What held-out speech costs


@dataclass(frozen=True)
class Cost:
    """Bits of all held-out utterances."""

    codes: float
    durations: float


@torch.inference_mode()
def cost_under(model: LanguageModel, utterances: list[Encoded]) -> Cost:
    """Every token is predicted once, from at least half of CONTEXT tokens before it where there are as many."""
    total = np.zeros(2)
    for encoded in utterances:
        codes, durations = (torch.from_numpy(x)[None] for x in (encoded.codes, encoded.durations))
        for first in range(0, max(1, codes.shape[1] - CONTEXT // 2), CONTEXT // 2):
            own = slice(first, first + CONTEXT)
            hidden = model.hidden(codes[:, own][:, :-1], durations[:, own][:, :-1])[0]
            counted = slice(CONTEXT // 2 if first else 0, None)
            parts = model.nats(hidden[counted], codes[0, own][counted], durations[0, own][counted])
            total += [float(part.double().sum()) for part in parts]
    return Cost(*(total / math.log(2)).tolist())


def cost_of_files(utterances: list[Encoded], statistics: TokenModel | None) -> Cost:
    """Sections of the `.dtm` files, without header and checksum. No statistics: fixed width."""
    mode = "raw" if statistics is None else "compact"
    written = [encoded.to_file(mode, statistics).info for encoded in utterances]  # type: ignore[arg-type]
    return Cost(sum(info.token_bits_written for info in written), sum(info.mask_bits for info in written))


def report(costs: dict[str, Cost], utterances: list[Encoded]) -> str:
    tokens, seconds = sum(e.codes.size for e in utterances), sum(e.duration_s for e in utterances)
    lines = [
        f"{len(utterances)} held-out utterances, {seconds:.0f} s, {tokens} tokens:",
        "",
        "| | code, bits a token | duration, bits a token | bits a token | bits a second |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, cost in costs.items():
        each = (cost.codes / tokens, cost.durations / tokens, (cost.codes + cost.durations) / tokens)
        rate = (cost.codes + cost.durations) / seconds
        lines.append(f"| {name} | {' | '.join(f'{x:.2f}' for x in each)} | {rate:.0f} |")
    return "\n".join(lines)


# Continuation


@torch.inference_mode()
def continuation(model: LanguageModel, prompt: Encoded, steps: int, temperature: float, seed: int) -> Encoded:
    """The prompt and about so many steps more, drawn token by token."""
    generator = torch.Generator().manual_seed(seed)

    def draw(logits: Tensor) -> Tensor:
        return torch.multinomial(F.softmax(logits / temperature, -1), 1, generator=generator)[:, 0]

    codes, durations = (torch.from_numpy(x)[None] for x in (prompt.codes, prompt.durations))
    end = prompt.mask.size + steps
    while int(durations.sum()) < end:
        hidden = model.hidden(codes[:, 1 - CONTEXT :], durations[:, 1 - CONTEXT :])[:, -1]
        classes = draw(model.to_class(hidden))
        code = model.members[classes, draw(model.member_logits(hidden, classes))]
        duration = draw(model.duration_logits(hidden, code)) + 1
        codes, durations = torch.cat([codes, code[None]], 1), torch.cat([durations, duration[None]], 1)
    return Encoded.from_durations(codes[0].numpy(), durations[0].numpy(), prompt.model_id, prompt.layout)


def first_part(encoded: Encoded, seconds: float) -> Encoded:
    kept = max(1, int((encoded.times[:, 1] <= seconds).sum()))
    return Encoded.from_durations(encoded.codes[:kept], encoded.durations[:kept], encoded.model_id, encoded.layout)


def tokenized(source: Path, output: Path, bitrate: float) -> TokenDataset:
    if not (source / "metadata.json").is_file():
        source = tokenize(source, output, bitrate=bitrate, workers=1).folder
    return TokenDataset(source)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("speech", type=Path)
    parser.add_argument("held_out", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("lm"))
    parser.add_argument("-b", "--bitrate", type=float, default=800)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--temperature", type=float, default=0.9)
    parser.add_argument("--prompt-seconds", type=float, default=3.0)
    parser.add_argument("--continue-seconds", type=float, default=4.0)
    parser.add_argument("--continuations", type=int, default=3)
    options = parser.parse_args()

    options.output.mkdir(parents=True, exist_ok=True)
    rows = tokenized(options.speech, options.output / "tokens", options.bitrate)
    held_out = [row.encoded for row in tokenized(options.held_out, options.output / "held-out", options.bitrate)]
    codec = DTMCodec.from_pretrained()
    if {rows.model_id, *(encoded.model_id for encoded in held_out)} != {codec.model_id}:
        raise SystemExit(f"tokens of {rows.model_id} and {held_out[0].model_id}; allowed: {codec.model_id}")
    torch.manual_seed(0)
    model = LanguageModel(codec.codebook)
    hours = sum(row.encoded.duration_s for row in rows) / 3600
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{len(rows)} utterances, {hours:.2f} h; {parameters / 1e6:.2f} M parameters", flush=True)
    train(model.train(), rows, options)
    model.eval()

    same_speech = TokenModel.fit([row.encoded.codes for row in rows], rows.codebook_size, codec.codebook)
    costs = {"fixed width": cost_of_files(held_out, None)}
    if codec.token_model is not None:
        costs["compact file, statistics of the model"] = cost_of_files(held_out, codec.token_model)
    costs["compact file, statistics of SPEECH"] = cost_of_files(held_out, same_speech)
    costs["language model"] = cost_under(model, held_out)
    print(report(costs, held_out), flush=True)

    steps = round(options.continue_seconds * codec.config.frame_rate)
    for number, encoded in enumerate(held_out[: options.continuations]):
        prompt = first_part(encoded, options.prompt_seconds)
        heard = continuation(model, prompt, steps, options.temperature, seed=number)
        for name, tokens in (("prompt", prompt), ("continued", heard)):
            path = options.output / f"{number}-{name}.wav"
            write_audio(path, codec.decode(tokens), codec.config.sample_rate)
        print(f"{path}: {prompt} -> {heard}")


if __name__ == "__main__":
    main()
