"""For a codec researcher: two systems at the same total bitrate, judged on the same speech.

    pip install '.[eval]'
    python examples/compare_codecs.py [SYSTEM SYSTEM] [--data MANIFEST|DIR] [--metrics pesq,stoi] [-o comparison]

The default is the bundled model with its own selector (PLE) and with ours (`lagrangian`) at 800 bps, on the bundled
recordings. Two recordings show how it is done and prove nothing: give a test set with --data.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dtm_codec.evaluation.data import read_data
from dtm_codec.evaluation.rendering import markdown_table
from dtm_codec.evaluation.report import run_block
from dtm_codec.evaluation.runner import evaluate
from dtm_codec.speech.audio import sample_path

SYSTEMS = ["dtm:small?bitrate=800", "dtm:small?bitrate=800&selector=lagrangian&s_max=4"]
MATCHED = 0.02
"""Rates that differ by more are not the same rate."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="*", default=SYSTEMS, help="as 'dtm-codec evaluate' takes them")
    parser.add_argument("--data", default=str(sample_path().parent))
    parser.add_argument("--metrics", default="pesq,stoi")
    parser.add_argument("-o", "--output", type=Path, default=Path("comparison"))
    options = parser.parse_args()
    source = Path(options.data).name
    summary = evaluate(
        options.systems, options.metrics.split(","), read_data(options.data), options.output, source=source
    )
    print(markdown_table(run_block(summary)))
    totals = {name: system.bps.total for name, system in summary.systems.items() if system.bps}
    if totals and max(totals.values()) > (1 + MATCHED) * min(totals.values()):
        rates = ", ".join(f"{name} {total:.0f} bps" for name, total in totals.items())
        raise SystemExit(f"not matched: {rates}; allowed: within {MATCHED:.0%} of each other")


if __name__ == "__main__":
    main()
