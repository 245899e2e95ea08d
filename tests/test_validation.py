"""What a user writes is read in one way, and every mistake is one line that names field, value and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from dtm_codec.errors import ConfigError
from dtm_codec.validation import Validated, build, load, parse_yaml, require

pytest.importorskip("yaml")


@dataclass(frozen=True)
class Wheel:
    inches: float
    spokes: int | None = None


@dataclass(frozen=True)
class Bicycle(Validated):
    name: str
    kind: Literal["city", "race"] = "city"
    wheels: tuple[Wheel, ...] = ()
    spare: Wheel | None = None
    parts: dict[str, Wheel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(len(self.wheels) != 1, "wheels", len(self.wheels), "none, two or more")


def test_dataclasses_inside_tuples_mappings_and_options_are_built() -> None:
    wheel = {"inches": 28}
    data = {"name": "a", "wheels": [wheel, wheel], "spare": wheel, "parts": {"front": wheel}}
    bicycle = build(Bicycle, data)
    assert bicycle == Bicycle("a", "city", (Wheel(28.0),) * 2, Wheel(28.0), {"front": Wheel(28.0)})
    assert Bicycle.from_dict(bicycle.to_dict()) == bicycle


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "Bicycle: expected a mapping, got []"),
        ({}, "the key 'name' is missing"),
        ({"name": "a", "bell": 1}, "unknown key 'bell'; known keys: kind, name, parts, spare, wheels"),
        ({"name": 3}, "name = 3; expected str"),
        ({"name": "a", "kind": "boat"}, "kind = 'boat'; allowed: 'city', 'race'"),
        ({"name": "a", "kind": ["city"]}, "kind = ['city']; allowed: 'city', 'race'"),
        ({"name": "a", "wheels": 2}, "wheels = 2; expected a list"),
        ({"name": "a", "wheels": [{"inches": "x"}]}, "wheels[0].inches = 'x'; expected float"),
        ({"name": "a", "wheels": [{"inches": 1, "spokes": True}]}, "wheels[0].spokes = True; expected int or null"),
        ({"name": "a", "wheels": [{"inches": 1}]}, "wheels = 1; allowed: none, two or more"),
        ({"name": "a", "spare": {"size": 1}}, "unknown key 'spare.size'; known keys: inches, spokes"),
        ({"name": "a", "parts": {"front": {}}}, "the key 'parts.front.inches' is missing"),
        ({"name": "a", "parts": [1]}, "parts = [1]; expected a mapping"),
        ({"name": "a", "parts": {1: {"inches": 1}}}, "parts = 1; expected str"),
    ],
)
def test_mistakes_are_named(data: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(Bicycle, data)
    assert str(caught.value) == message


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_files_are_read_and_named_in_errors(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"mine.{suffix}"
    path.write_text('{"name": "a", "spare": {"inches": 1e1}}')
    assert load(Bicycle, path) == Bicycle("a", spare=Wheel(10.0))
    for text, message in (
        ('{"name": 1}', "name = 1; expected str"),
        ("{", f"cannot be read as {suffix.upper()}"),
        ('{"name": "a", "name": "b"}', "the key 'name' is there twice"),
        ("\x00", "cannot be read as"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message) as caught:
            load(Bicycle, path)
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(Bicycle, path)
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: no such file"):
        load(Bicycle, tmp_path / "nowhere.yaml")


def test_yaml_means_what_its_readers_think() -> None:
    assert parse_yaml("{a: 1e-4, b: -2E3, c: 1e, d: v1e4, e: 010, f: 5e3f, g: 1e3_corpus}", "x") == {
        "a": 1e-4, "b": -2e3, "c": "1e", "d": "v1e4", "e": 8, "f": "5e3f", "g": "1e3_corpus",
    }  # fmt: skip
    merged = parse_yaml("base: &base {a: 1, b: 2}\nown: {<<: *base, a: 3}", "x")
    assert merged["own"] == {"a": 3, "b": 2}
    with pytest.raises(ConfigError, match=r"x: cannot be read as YAML \(the key 'b' is there twice"):
        parse_yaml("a: {b: 1, b: 1}", "x")
