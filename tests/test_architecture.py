"""Dependencies point one way (docs/architecture.md), and the light rooms stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dtm_codec

PACKAGE = Path(dtm_codec.__file__).parent

GROUND = {"browser", "config", "errors", "layout", "mels", "specs", "speech", "system", "validation"}
FIGURES = {"metrics", "plotting", "ratings"}
PARTS = {"nn", "selectors", "rate", "bitstream", "encoded"}
CORE = {"backends", "batches", "codec", "coding", "live", "models", "network"}
ROOMS = {"training", "evaluation", "corpus", "web"}

ALLOWED = {
    **dict.fromkeys(GROUND, GROUND),
    "nn": GROUND,
    "selectors": GROUND,
    "bitstream": GROUND,
    "encoded": GROUND | {"bitstream"},
    "rate": GROUND | {"selectors"},
    **dict.fromkeys(CORE, GROUND | PARTS | CORE),
    **dict.fromkeys(FIGURES, GROUND | PARTS | CORE | FIGURES),
    **dict.fromkeys(ROOMS, GROUND | PARTS | CORE | FIGURES),
}


def imported_rooms(path: Path) -> set[str]:
    """First names below dtm_codec that a module imports, relative or absolute."""
    package = path.relative_to(PACKAGE.parent).with_suffix("").parts[:-1]
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        targets: list[tuple[str, ...]] = []
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = tuple(node.module.split(".")) if node.module else ()
            targets = [(*base, *module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            targets = [tuple(alias.name.split(".")) for alias in node.names]
        rooms |= {target[1] for target in targets if target[0] == "dtm_codec" and len(target) > 1}
    return {room for room in rooms if (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").is_file()}


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_rooms_import_only_what_is_below_them(room: str) -> None:
    files = sorted((PACKAGE / room).rglob("*.py")) or [p for p in [PACKAGE / f"{room}.py"] if p.is_file()]
    for path in files:
        assert imported_rooms(path) - {room} <= ALLOWED[room], path.relative_to(PACKAGE)


def test_every_room_is_known() -> None:
    found = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert found - {"__init__", "__main__", "cli"} <= set(ALLOWED)


@pytest.mark.parametrize(
    "module",
    [
        "",
        ".bitstream.container",
        ".encoded",
        ".live.packets",
        ".cli",
        ".codec",
        ".backends.onnx.backend",
        ".backends.onnx.export",
    ],
)
def test_light_modules_do_not_load_torch(module: str) -> None:
    code = f"import sys, dtm_codec{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
