"""Fair comparisons at matched total bitrate: metrics, systems under test, runs, tables and the paper's own figures.

    systems/   what is judged: `encode(audio) -> Coded`, `decode -> audio`, ours and others
    runner     systems x utterances x metrics, in parallel, resumable
    report     tables and figures of finished runs
    recipes/   one per result of the paper
    paper      the tables of the paper, as data

Everything here hears 16 kHz mono: a system or metric that works at another rate resamples.
"""
