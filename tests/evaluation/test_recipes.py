"""Recipes: one per result of the paper, runnable with whatever models are there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dtm_codec.config import SMALL_PRESETS
from dtm_codec.errors import ConfigError, DTMCodecError
from dtm_codec.evaluation import paper, recipes, systems
from dtm_codec.evaluation.models import Models
from dtm_codec.evaluation.recipes.choices import Choice, Choices, judged_models
from dtm_codec.evaluation.recipes.run import RecipeRunner, Settings
from dtm_codec.evaluation.systems.plain import Identity
from dtm_codec.evaluation.systems.remembered import Portrait, Remembered
from dtm_codec.specs import Spec

yaml = pytest.importorskip("yaml")
CONFIGS = Path(__file__).parents[2] / "configs"


def test_every_table_of_the_paper_has_its_recipe() -> None:
    assert {recipes.load(name).paper for name in recipes.ORDER} - {None} == set(paper.tables())


@pytest.mark.parametrize("name", [*recipes.ORDER, *recipes.BEYOND])
def test_names_in_recipes_mean_something(name: str) -> None:
    recipe = recipes.load(name)
    small, big = Models(None, "small"), Models(None, "paper")
    tuned = {
        family: {
            yaml.safe_load(path.read_text())["model"]["name"] for path in folder.glob("*.yaml") if path.stem != "base"
        }
        for family in ("small", "paper")
        if (folder := CONFIGS / family / "finetune").is_dir()
    }
    for row in recipe.rows:
        assert len(row.cells) == len(recipe.headings)
        assert bool(row.system) != bool(row.model)
        if row.system and not row.system.startswith(("encodec", "dac", "mimi", "snac", "xcodec")):
            assert systems.build(row.system).name == row.system
        for model in filter(None, (row.model, row.against)):
            assert small.full_name(model) in {*SMALL_PRESETS, *tuned.get("small", ())}
            assert f"s-{big.full_name(model)}" in SMALL_PRESETS or big.full_name(model) in tuned.get("paper", ())


def test_models_are_found_in_folders_exports_and_by_name(models: Path) -> None:
    found = Models(models, "small", {"vfr-25": "random:s-vfr-25", "vfr-80": "nowhere"})
    assert found.find("vfr-50") == str(models / "s-vfr-50" / "export")
    assert found.find("ffr-50") == str(models / "s-ffr-50")
    assert found.find("vfr-25") == "random:s-vfr-25"
    assert found.find("vfr-80") is None
    assert found.find("vfr-40") is None
    assert Models(models, "paper").find("vfr-50") is None


def test_pairs_of_several_seeds_have_an_interval_over_them(
    models_of_seeds: Path, manifest: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    found = Models(models_of_seeds)
    assert (found.seeds("vfr-50"), found.seeds("ffr-50"), found.seeds("vfr-25")) == ([2, 3, 4], [2, 3], [])
    settings = Settings(found, ["si-sdr"], tmp_path / "out", str(manifest))
    RecipeRunner(settings, lambda what: lambda done, total: None).run([recipes.load("ffr-vfr")])
    lines = [line for line in (settings.out / "report.md").read_text().splitlines() if line.startswith("| 50 Hz")]
    of_seeds = [line for line in lines if "→" in line][:4]
    assert [line.split("|")[1].strip() for line in of_seeds] == [
        "50 Hz", "50 Hz, seed 2", "50 Hz, seed 3", "50 Hz, 3 seeds"
    ]  # fmt: skip
    percents = [float(line.split("(")[1].split("%")[0]) for line in of_seeds]
    assert percents[3] == pytest.approx(sum(percents[:3]) / 3, abs=0.1)


@pytest.fixture
def cooked(models: Path, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The report of all recipes that need no peer programs, with two tiny models."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("matplotlib")
    absent = Choice(None, "not installed")
    monkeypatch.setattr(Choices, "_peer", lambda self, name: Choice(name) if name == "identity" else absent)
    ratings = tmp_path / "ratings.csv"
    ratings.write_text("listener,trial,system,rating\nl1,t1,VFR,80\nl1,t1,FFR,70\nl2,t1,VFR,90\nl2,t1,FFR,60\n")
    settings = Settings(
        Models(models), ["si-sdr", "stoi"], tmp_path / "out", str(manifest), probes=[str(manifest)], ratings=ratings
    )
    probe = tmp_path / "probe.yaml"
    probe.write_text(
        "title: Probes\nkind: probing\npaper: probing\nheadings: [Model, Setting]\n"
        "sets: [{name: Mini, set: mini, label: digit, folds: 3}, {name: SLURP, set: slurp, label: intent, folds: 2}]\n"
        "rows: [{cells: [Ours, VFR], model: vfr-50}, {cells: [Ours, FFR], model: ffr-25}]\n"
    )
    names = [*(name for name in recipes.ORDER if name != "probing"), str(probe)]
    RecipeRunner(settings, lambda what: lambda done, total: None).run([recipes.load(name) for name in names])
    return (settings.out / "report.md").read_text()


def test_all_recipes_cook_with_what_is_there(cooked: str) -> None:
    sections = {part.splitlines()[0]: part for part in cooked.split("\n## ")[1:]}
    assert len(sections) == len(recipes.ORDER)
    assert all("Reference rows from the paper" in part for title, part in sections.items() if "Figure" not in title)
    main = sections["Reconstruction at matched total bitrate (Table 1)"]
    assert "| DTM-Codec@50Hz VFR | 7" in main
    assert "DTM-Codec@80Hz VFR: s-vfr-80 is not trained yet" in main
    assert "Opus 6 kbps: not installed" in main
    pairs = sections["FFR against VFR at the same total bitrate (Table 2)"]
    assert "50 Hz" in pairs
    assert "→" in pairs.split("Reference")[0]
    assert "25 Hz: one of the two models is not trained yet" in pairs
    selectors = sections["Selectors at 800 bps (Table 6)"]
    assert "Lagrangian DP" in selectors
    assert "s-dp is not trained yet; selector swapped into s-vfr-50" in selectors
    codebook = sections["Codebook utilisation at 800 bps (Table 5)"]
    assert "codes in" in codebook
    mls = sections["Out of domain, other languages (Table 8)"]
    assert "1 utterances" in mls
    listening = sections["Listening test (Table 3)"]
    assert "| VFR | 2 | **85.00**" in listening
    probes = sections["Probes"]
    assert "Majority class" in probes
    assert "SLURP: no data given" in probes


def test_results_outlive_the_models(models: Path, manifest: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    probe = tmp_path / "probe.yaml"
    probe.write_text(
        "title: Probes\nkind: probing\nheadings: [Model]\n"
        "sets: [{name: Mini, set: mini, label: digit, folds: 3}]\nrows: [{cells: [Ours], model: vfr-50}]\n"
    )
    names = ("ffr-vfr", "codebook", "rate-distortion", str(probe))

    def report(folder: Path, calibrate: Path) -> list[str]:
        settings = Settings(Models(folder), ["si-sdr"], tmp_path / "out", str(manifest), str(calibrate))
        settings = replace(settings, probes=[str(manifest)])
        RecipeRunner(settings, lambda what: lambda done, total: None).run([recipes.load(name) for name in names])
        lines = (tmp_path / "out" / "report.md").read_text().splitlines()
        return [line for line in lines if line.startswith("|")]

    with_models = report(models, manifest)
    assert {"s-vfr-50", "s-ffr-50"} <= judged_models(tmp_path / "out")
    with pytest.raises(ConfigError, match="nothing holds no report"):
        judged_models(tmp_path / "nothing")
    assert any("codes in" in line for line in with_models)
    elsewhere = manifest.with_name("moved") / manifest.name
    elsewhere.parent.mkdir()
    elsewhere.write_text(manifest.read_text())
    assert sorted(report(tmp_path / "nothing", elsewhere)) == sorted(with_models)
    assert "measured earlier, not at hand any more" in (tmp_path / "out" / "report.md").read_text()


def test_what_was_never_measured_of_a_model_that_is_gone_stays_empty(
    models: Path, manifest: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "title: Mine\nkind: systems\nheadings: [System]\n"
        "rows: [{cells: [Theirs], system: identity}, {cells: [Ours], model: vfr-50}]\n"
    )
    for folder, metrics in ((models, ["si-sdr"]), (tmp_path / "nothing", ["si-sdr", "stoi"])):
        settings = Settings(Models(folder), metrics, tmp_path / "out", str(manifest))
        RecipeRunner(settings, lambda what: lambda done, total: None).run([recipes.load(str(mine))])
    lines = (tmp_path / "out" / "report.md").read_text().splitlines()
    ours, theirs = (next(line for line in lines if line.startswith(f"| {name} |")) for name in ("Ours", "Theirs"))
    assert ours.split("|")[-2].strip() == "–"
    assert theirs.split("|")[-2].strip() != "–"
    with pytest.raises(DTMCodecError, match="not at hand any more"):
        Remembered(Portrait("gone", "Gone", "Gone", "1", None)).encode(np.zeros(10, np.float32))


def test_codecs_of_others_have_no_extra_columns(models: Path, manifest: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "title: Codes\nkind: systems\nheadings: [System]\nextras: [codes]\n"
        "rows: [{cells: [Theirs], system: identity}, {cells: [Ours], model: vfr-50}]\n"
    )
    settings = Settings(Models(models), ["si-sdr"], tmp_path / "out", str(manifest))
    RecipeRunner(settings, lambda what: lambda done, total: None).run([recipes.load(str(mine))])
    lines = (tmp_path / "out" / "report.md").read_text().splitlines()
    theirs, ours = (next(line for line in lines if line.startswith(f"| {name} ")) for name in ("Theirs", "Ours"))
    assert "codes in" in ours
    assert "codes in" not in theirs


def test_calibrated_rows_are_at_the_papers_rate(models: Path, manifest: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    settings = Settings(Models(models), ["si-sdr"], tmp_path, str(manifest), calibrate=str(manifest))
    runner = RecipeRunner(settings, lambda what: lambda done, total: None)
    recipe = recipes.load("masking")
    runner.run([recipe])
    (summary,) = runner._summaries.values()
    vfr = next(s for name, s in summary.systems.items() if "calibrate" in name)
    assert vfr.bps is not None
    assert vfr.bps.total == pytest.approx(800, rel=0.1)  # all three utterances have 800, the English two nearly


@pytest.mark.parametrize(("name", "bundled"), [("losses", "small-live"), ("thinning", "small")])
def test_another_model_can_take_the_place_of_the_bundled_one(
    name: str, bundled: str, models: Path, tmp_path: Path
) -> None:
    own = str(models / "s-vfr-50" / "export")
    settings = Settings(Models(None, given={bundled: own}), [], tmp_path)
    runner = RecipeRunner(settings, lambda what: lambda done, total: None)
    recipe = recipes.load(name)
    ours = [row for row in recipe.rows if "dtm:" in str(row.system)]
    assert len(ours) > 5
    for row in ours:
        assert runner.choices.of(recipe, row).system == str(row.system).replace(f"dtm:{bundled}?", f"dtm:{own}?")


def test_a_peer_named_in_short_is_found_in_the_results_by_its_full_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systems, "build", lambda text: Identity(Spec(text, "in-full")))
    runner = RecipeRunner(Settings(Models(tmp_path), [], tmp_path), lambda what: lambda done, total: None)
    recipe = recipes.load("main")
    row = next(row for row in recipe.rows if row.system)
    assert runner.choices.of(recipe, row).system == f"{row.system}:in-full"


def test_without_models_or_a_language_the_report_says_so(manifest: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    mine = tmp_path / "polish.yaml"
    mine.write_text(
        "title: Polish\nkind: systems\npaper: mls\nwhere: [lang=pl]\nheadings: [System]\n"
        "rows: [{cells: [Reference], system: identity}]\n"
    )
    settings = Settings(Models(tmp_path), ["si-sdr"], tmp_path / "out", str(manifest))
    runner = RecipeRunner(settings, lambda what: lambda done, total: None)
    runner.run([recipes.load("masking"), recipes.load(str(mine))])
    text = (tmp_path / "out" / "report.md").read_text()
    assert "Conv Conv: s-conv is not trained yet" in text
    assert "has no utterances with lang=pl" in text


def test_a_recipe_of_ones_own_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for text, message in (
        ("title: t\nkind: poem\n", "kind = 'poem'; allowed: 'systems'"),
        ("kind: systems\n", "'title' is missing"),
        ("title: t\nkind: systems\nrows: [{cells: [a, b]}]\n", "row 'a b'; allowed: either a system or a model"),
        ("title: t\nkind: systems\npaper: mian\n", "paper = 'mian'; allowed: main, "),
        ("title: t\nkind: systems\nrows: [{cells: a}]\n", r"rows\[0\].cells = 'a'; expected a list"),
        ("title: t\nkind: systems\ncolour: red\n", "colour"),
        (
            "title: t\nkind: probing\nrows: [{cells: [a], system: codec2:700C}]\n",
            "mine.yaml: system = 'codec2:700C' in a probing recipe; allowed: a model, or dtm:MODEL",
        ),
        ("title: t\nkind: systems\nrows: [{cell: a}]\n", "cell"),
        ("title: [\n", "mine.yaml: cannot be read as YAML"),
        ("- a\n", "mine.yaml: Recipe: expected a mapping"),
    ):
        path.write_text(text)
        with pytest.raises(DTMCodecError, match=message):
            recipes.load(str(path))
    with pytest.raises(DTMCodecError, match="known"):
        recipes.load("tabel")
