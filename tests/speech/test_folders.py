"""Folders: every file once, in one order; LibriSpeech and MLS as they are published."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dtm_codec.errors import DataError
from dtm_codec.speech.folders import PUBLISHED, read_set
from dtm_codec.system.files import files_under, walk


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def walked(folder: Path, **options: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in walk(folder, **options)]


def test_files_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    make(tmp_path, "b.wav", "a/z.wav", "c/a.wav", "a/b/c.wav", "a-1.wav", "C.wav")
    assert walked(tmp_path) == ["C.wav", "a/b/c.wav", "a/z.wav", "a-1.wav", "b.wav", "c/a.wav"]
    assert list(walk(tmp_path)) == sorted(path for path in tmp_path.rglob("*") if path.is_file())


def test_what_is_hidden_or_left_out_is_not_seen(tmp_path: Path) -> None:
    make(tmp_path, "a.wav", ".b.wav", ".git/c.wav", "x/.d/e.wav", "out/f.wav", "x/out/g.wav")
    assert walked(tmp_path, leave_out=tmp_path / "out") == ["a.wav", "x/out/g.wav"]


def test_links_are_followed_to_every_folder_once(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    make(tmp_path, "corpus/a.wav", "corpus/deep/b.wav", "outside/c.wav")
    for name, target in (
        ("again", tmp_path / "outside"),
        ("link", tmp_path / "outside"),
        ("deep/loop", folder),
        ("nowhere.wav", tmp_path / "nowhere"),
        ("knot", folder / "knot"),
        ("d.wav", tmp_path / "outside" / "c.wav"),
    ):
        (folder / name).symlink_to(target)
    assert walked(folder) == ["a.wav", "again/c.wav", "d.wav", "deep/b.wav", "knot", "nowhere.wav"]
    readable = [path.name for path in files_under(folder, (".wav",))]
    assert readable == ["a.wav", "c.wav", "d.wav", "b.wav"], "a link to nowhere is no file"


def test_a_folder_that_cannot_be_read_is_an_error_not_a_gap(tmp_path: Path) -> None:
    make(tmp_path, "a.wav", "b/c.wav", "d.wav")
    found = walk(tmp_path)
    assert next(found).name == "a.wav"
    shutil.rmtree(tmp_path / "b")
    with pytest.raises(OSError, match="No such file"):
        next(found)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    make(
        tmp_path,
        "LibriSpeech/dev/84/121123/84-121123-0000.flac",
        "mls_polish/test/audio/6892/10049/6892_10049_000000.opus",
        "mls_polish/test/audio/6892/10049/6892_10049_000001.flac",
        "plain/a.wav",
    )
    transcript = "84-121123-0000 GO ON\n\n84-121123-0001 GONE\n84-121123-0002\n"
    (tmp_path / "LibriSpeech/dev/84/121123/84-121123.trans.txt").write_text(transcript)
    lines = "6892_10049_000000\tmoże być\r\n6892_10049_000001\ttak\r\n"
    (tmp_path / "mls_polish/test/transcripts.txt").write_bytes(lines.encode())
    (tmp_path / "plain/a.txt").write_text("beside\n")
    return tmp_path


def test_published_corpora_list_their_recordings(published: Path) -> None:
    (first, gone) = PUBLISHED["librispeech"](published)
    assert (first.id, first.text, first.speaker, first.language) == ("84-121123-0000", "GO ON", "84", "en")
    assert first.audio == published / "LibriSpeech/dev/84/121123/84-121123-0000.flac"
    assert gone.audio.name == "84-121123-0001.flac", "what is listed, there or not"
    opus, flac = PUBLISHED["mls"](published)
    assert [(u.audio.suffix, u.audio.is_file()) for u in (opus, flac)] == [(".opus", True), (".flac", True)]
    assert [(u.text, u.speaker, u.language) for u in (opus, flac)] == [
        ("może być", "6892", "pl"),
        ("tak", "6892", "pl"),
    ]


def test_a_folder_is_read_with_its_transcripts_if_they_are_wanted(published: Path) -> None:
    found = {Path(u.id).name: (u.text, u.speaker, u.language) for u in read_set(published, complete=True)}
    assert found == {
        "84-121123-0000.flac": ("GO ON", "84", "en"),
        "6892_10049_000000.opus": ("może być", "6892", "pl"),
        "6892_10049_000001.flac": ("tak", "6892", "pl"),
        "a.wav": ("beside", None, None),
    }
    (published / "plain/a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"a\.txt is not UTF-8"):
        read_set(published, complete=True)
    assert [u.text for u in read_set(published)] == [None] * 4


def test_an_mls_folder_is_known_through_a_link_and_from_inside(
    published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (published / "link").symlink_to(published / "mls_polish")
    assert {u.language for u in PUBLISHED["mls"](published / "link")} == {"pl"}
    monkeypatch.chdir(published / "mls_polish" / "test")
    assert {u.language for u in PUBLISHED["mls"](Path())} == {"pl"}
    assert {u.language for u in read_set(Path("audio"), complete=True)} == {"pl"}


def test_what_is_no_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no speech at .*nowhere"):
        read_set(tmp_path / "nowhere")
