"""Writes golden/: a `.dtm` file for each combination of rate and mode, and golden.json with what they hold.

    python tests/bitstream/make_golden.py

The files are the promise that what version 2 has written stays readable. Never write them anew for version 2: a
change of the coders that needs it is a new version.
"""

import json
from pathlib import Path

import numpy as np

from dtm_codec.bitstream.token_coder import TokenModel
from dtm_codec.encoded import Encoded
from dtm_codec.layout import Layout

GOLDEN = Path(__file__).with_name("golden")


def numbers(count: int) -> list[int]:
    """A plain generator, the same in any version of anything."""
    state, out = 1, []
    for _ in range(count):
        state = (state * 1_103_515_245 + 12_345) % 2**31
        out.append(state >> 16)
    return out


def rhythmic_mask(steps: int) -> list[bool]:
    """Spans of 1 to 5 steps that change slowly, as in speech."""
    mask: list[bool] = []
    for index, number in enumerate(numbers(steps)):
        mask += [True] + [False] * ((index // 12 + (number % 4 == 0)) % 5)
    return mask[:steps]


def quiet_mask(steps: int) -> list[bool]:
    """So rarely a kept step that counts are halved and probabilities held at their limit."""
    return [step % 97 == 0 for step in range(steps)]


def token_model() -> TokenModel:
    """16 codes in 4 classes, one of them with a single code."""
    counts = np.array(numbers(32), dtype=np.float64) ** 3
    return TokenModel.from_counts(counts[:16], counts[16:].reshape(4, 4), [code % 3 for code in range(15)] + [3])


def tokens(count: int, model: TokenModel) -> list[int]:
    """Codes that follow the statistics."""
    codes: list[int] = []
    draws = iter(numbers(2 * count))
    kind = 0
    for _ in range(count):
        kind = int(np.searchsorted(np.cumsum(model.transitions[kind]), next(draws) * 512, side="right"))
        of_kind = model.codes_of[kind]
        codes.append(int(of_kind[np.searchsorted(np.cumsum(model.members[of_kind]), next(draws) * 512, side="right")]))
    return codes


def utterances(model: TokenModel) -> dict[str, Encoded]:
    variable, fixed = Layout(16_000, 160, 4, None), Layout(12_345, 100, 4, 3)
    masks = {
        "vfr": (variable, rhythmic_mask(240)),
        "quiet": (variable, quiet_mask(1_500)),
        "ffr": (fixed, fixed.fixed_mask(240).tolist()),
    }
    return {
        name: Encoded(
            codes=np.array(tokens(sum(mask), model)),
            mask=np.array(mask),
            num_samples=len(mask) * layout.hop_length - 7,
            model_id="golden-2:c0ffee02",
            layout=layout,
        )
        for name, (layout, mask) in masks.items()
    }


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    model = token_model()
    facts: dict[str, object] = {"statistics": {name: array.tolist() for name, array in model.to_arrays().items()}}
    for name, encoded in utterances(model).items():
        facts[name] = {
            "model_id": encoded.model_id,
            **vars(encoded.layout),
            "num_samples": encoded.num_samples,
            "mask": "".join(map(str, encoded.mask.astype(int))),
            "codes": encoded.codes.tolist(),
        }
        (GOLDEN / f"{name}-raw.dtm").write_bytes(encoded.to_bytes("raw"))
        (GOLDEN / f"{name}-compact.dtm").write_bytes(encoded.to_bytes("compact", model))
        if encoded.layout.stride is None:  # without statistics, only the mask is range coded
            (GOLDEN / f"{name}-mask.dtm").write_bytes(encoded.to_bytes("compact"))
    (GOLDEN / "golden.json").write_text(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
