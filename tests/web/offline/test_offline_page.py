"""The page that computes in the browser: in a Chromium that reaches this machine alone, held to the package."""

from __future__ import annotations

import base64
import io
import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import soundfile
from browser_support import CONTRAST, SMALL, WIDE, Page, browser, nameless
from selenium.webdriver.common.keys import Keys
from web_support import served

from dtm_codec import DTMCodec
from dtm_codec.bitstream.container import inspect
from dtm_codec.encoded import Encoded
from dtm_codec.speech.audio import Samples, read_audio, resample, sample_path, write_audio
from dtm_codec.web.offline.app import create_page_app
from dtm_codec.web.offline.folder import ABOUT, Files, write_folder

GOLDEN = Path(__file__).parents[2] / "bitstream" / "golden"
LOADING = 200
"""Seconds to wait for the model: 40 MB, and WebAssembly to compile."""
TIES = 1e-3
"""Share of tokens that may differ: sums of another order round otherwise."""


@pytest.fixture(scope="module")
def small() -> DTMCodec:
    return DTMCodec.from_pretrained("small")


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, downloads: Path, speech: Samples) -> Iterator[Page]:
    microphone = tmp_path_factory.mktemp("microphone") / "speech.wav"
    write_audio(microphone, speech, 16_000)
    with browser(downloads, microphone, cut_off=True) as page:
        yield page


def opened(page: Page, url: str) -> None:
    page.resize(1280, 720)
    page.open(url)
    page.until(lambda: page["download"].is_enabled() or page.text("message"), "nothing was encoded", LOADING)
    assert page.text("message") == ""


CONTROLLED = "return navigator.serviceWorker.controller !== null"


@pytest.fixture(scope="module")
def loaded(page: Page, files: Files) -> Iterator[Page]:
    """The page with its sample encoded, in pieces of a second or two. Then its server stops: all that tests do works
    without one."""
    about = json.loads(files[ABOUT]) | {"block": 100, "piece": 200}
    with served(create_page_app({**files, ABOUT: json.dumps(about).encode()})) as url:
        opened(page, url)
        page.until(lambda: page.script(CONTROLLED), "the page was not stored")
    yield page
    assert page.complaints() == []


def give(page: Page, path: Path) -> None:
    """A file by the file dialogue, encoded or refused."""
    page.script("document.getElementById('status').textContent = ''; document.getElementById('message').hidden = true")
    page["file"].send_keys(str(path))
    page.until(
        lambda: page.text("status") or page["message"].is_displayed(), f"nothing happens with {path.name}", LOADING
    )


def saved(page: Page, downloads: Path, button: str, name: str) -> bytes:
    (downloads / name).unlink(missing_ok=True)
    page[button].click()
    page.until((downloads / name).is_file, f"{name} was not saved")
    return (downloads / name).read_bytes()


def results(page: Page, downloads: Path) -> tuple[bytes, Samples]:
    """The `.dtm` and the decoded speech of the page."""
    dtm = saved(page, downloads, "download", "speech.dtm")
    return dtm, read_audio(io.BytesIO(saved(page, downloads, "download-wav", "decoded.wav")).getvalue())[0]


def set_bitrate(page: Page, bitrate: int) -> None:
    before = page.text("caption-decoded")
    move = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
    page.script(move, page["bitrate"], bitrate)
    page.until(lambda: page.text("caption-decoded") != before, "the slider does nothing")


def assert_same(page: Encoded, python: Encoded) -> None:
    """The same file but for ties."""
    assert (page.num_samples, page.model_id, page.layout) == (python.num_samples, python.model_id, python.layout)
    moved = np.count_nonzero(page.mask != python.mask)
    assert moved <= max(2, TIES * python.mask.size)
    both = page.mask & python.mask
    codes = [np.zeros(e.mask.size, int) for e in (page, python)]
    for filled, e in zip(codes, (page, python), strict=True):
        filled[e.positions] = e.codes
    # Tokens beside a frame that moved may change with it: the second stage attends to it.
    assert np.count_nonzero(codes[0][both] != codes[1][both]) <= max(2, TIES * python.codes.size) + moved


def test_the_sample_is_encoded_at_once_and_nothing_was_asked_of_others(loaded: Page):
    assert loaded.text("source-name").startswith("Sample")
    assert loaded.number("nominal-total") == pytest.approx(800, abs=5)
    assert loaded.text("model").startswith("small:")
    assert loaded.text("promise") == "Nothing leaves this machine"
    assert loaded["promise"].is_displayed()
    hosts = loaded.script(
        "return performance.getEntriesByType('resource').map((entry) => new URL(entry.name).hostname)"
    )
    assert set(hosts) == {"127.0.0.1"}
    assert loaded.script("return crossOriginIsolated"), "threads need the headers"


@pytest.mark.parametrize("bitrate", [400, 1300])
def test_masks_codes_and_sound_are_those_of_python(
    loaded: Page, downloads: Path, small: DTMCodec, speech: Samples, tmp_path: Path, bitrate: int
):
    write_audio(tmp_path / "speech.wav", speech, 16_000)
    given, _ = read_audio(tmp_path / "speech.wav")
    give(loaded, tmp_path / "speech.wav")
    set_bitrate(loaded, bitrate)
    dtm, heard = results(loaded, downloads)
    found = small.from_bytes(dtm)
    assert_same(found, small.encode(given, 16_000, bitrate=bitrate))
    np.testing.assert_allclose(heard, small.decode(found), atol=1e-3)
    assert loaded.number("nominal-total") == pytest.approx(found.bits.total / found.duration_s, abs=0.6)
    assert loaded.number("fact-file") == len(dtm)
    info = inspect(dtm)
    for part, bits in (("content", info.token_bits_written), ("position", info.mask_bits)):
        assert loaded.number(f"written-{part}") == pytest.approx(bits / found.duration_s, abs=0.6)


def test_other_rates_and_stereo_are_read(
    loaded: Page, downloads: Path, small: DTMCodec, speech: Samples, tmp_path: Path
):
    high = resample(speech, 16_000, 48_000)
    write_audio(tmp_path / "high.wav", high, 48_000)
    give(loaded, tmp_path / "high.wav")
    dtm, _ = results(loaded, downloads)
    assert small.from_bytes(dtm).num_samples == speech.size


def test_a_file_that_breaks_off_is_read_with_a_note(loaded: Page, speech: Samples, tmp_path: Path):
    write_audio(tmp_path / "cut.wav", speech, 16_000)
    (tmp_path / "cut.wav").write_bytes((tmp_path / "cut.wav").read_bytes()[: 44 + 2 * 8_000])
    give(loaded, tmp_path / "cut.wav")
    assert loaded.text("source-hint") == f"The file breaks off: 0.50 s of {speech.size / 16_000:.2f} s are there."


def test_a_file_of_python_is_decoded(loaded: Page, downloads: Path, small: DTMCodec, speech: Samples, tmp_path: Path):
    encoded = small.encode(speech, 16_000, bitrate=600)
    for mode in ("raw", "compact"):
        small.save(encoded, tmp_path / f"{mode}.dtm", mode)
        give(loaded, tmp_path / f"{mode}.dtm")
        assert loaded.text("source-name") == f"{mode}.dtm"
        dtm, heard = results(loaded, downloads)
        assert dtm == (tmp_path / f"{mode}.dtm").read_bytes()
        np.testing.assert_allclose(heard, small.decode(encoded), atol=1e-3)
    assert not loaded["figure-original"].is_displayed(), "there is no original"
    assert not loaded["bitrate"].is_enabled()
    assert loaded.text("bitrate-value") == str(round(encoded.bits.total / encoded.duration_s))


def test_what_cannot_be_decoded_gets_a_message(loaded: Page, small: DTMCodec, speech: Samples, tmp_path: Path):
    sound = small.to_bytes(small.encode(speech, 16_000))
    other = bytearray(sound[:-4])
    other[10] ^= 1  # the model's fingerprint
    stored = int.from_bytes(sound[-4:], "big") ^ zlib.crc32(sound[:-4])
    other += (zlib.crc32(other) ^ stored).to_bytes(4, "big")
    for content, message in (
        (sound[:-1], "damaged or cut off"),
        (b"DTM", "damaged or cut off"),
        (b"DTM\x10" + bytes(30), "version 1"),
        (bytes(other), "encoded by model"),
        (b"no sound at all", "cannot read the file"),
        (b"", "cannot read the file"),
    ):
        (tmp_path / "bad.dtm").write_bytes(content)
        give(loaded, tmp_path / "bad.dtm")
        assert message in loaded.text("message")
    loud = speech.copy()
    loud[1234] = 1e30
    soundfile.write(tmp_path / "loud.wav", loud, 16_000, subtype="FLOAT")
    give(loaded, tmp_path / "loud.wav")
    assert "loud.wav: The file holds 1.00e+30 at sample 1234; allowed: -100 ... 100" in loaded.text("message")
    (tmp_path / "good.dtm").write_bytes(sound)
    give(loaded, tmp_path / "good.dtm")
    assert not loaded["message"].is_displayed(), "the page goes on after an error"


def test_the_microphone(loaded: Page, downloads: Path, small: DTMCodec):
    loaded["record"].click()
    loaded.until(lambda: loaded.text("record").strip() == "Stop", "it does not record")
    loaded.script("document.getElementById('status').textContent = ''")
    loaded.promise("await new Promise((resolve) => setTimeout(resolve, 1500));")
    loaded["record"].click()
    loaded.until(lambda: loaded.text("status"), f"the recording was not encoded; {loaded.text('message')}")
    assert loaded.text("source-name") == "Your recording"
    dtm, heard = results(loaded, downloads)
    found = small.from_bytes(dtm)
    assert 0.5 < found.duration_s < 10
    np.testing.assert_allclose(heard, small.decode(found), atol=1e-3)
    assert np.abs(heard).max() > 0.01, "silence"


def test_it_plays_and_switches_by_keys(loaded: Page, speech: Samples, tmp_path: Path):
    write_audio(tmp_path / "speech.wav", speech, 16_000)
    give(loaded, tmp_path / "speech.wav")
    loaded.script("document.activeElement.blur()")
    loaded.press("l")  # a busy machine must not come to its end meanwhile
    loaded.press(Keys.SPACE)
    loaded.until(lambda: loaded.number("time") > 0.2, "it does not play")
    loaded.press("x")
    assert loaded["hear-original"].get_attribute("aria-pressed") == "true"
    loaded.press(Keys.SPACE)
    assert loaded.text("play").strip() == "Play"
    loaded.press("l")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_a_phone_and_has_contrast_and_names(loaded: Page, dark: bool):
    loaded.resize(390, 844, scale=2, dark=dark)
    assert loaded.script(WIDE, 390) == []
    assert loaded.script(SMALL) == [], "too small to touch"
    assert loaded.script(CONTRAST) == []
    assert nameless(loaded) == []
    loaded.resize(1280, 720)


READ_GOLDEN = """
const {{ read, write }} = await import(new URL("static/codec/container.js", location).href);
const {{ TokenModel }} = await import(new URL("static/codec/token_coder.js", location).href);
const {{ files, statistics }} = {given};
const model = new TokenModel(statistics.class_of, statistics.transitions.flat(), statistics.members);
return Object.entries(files).map(([name, text]) => {{
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const found = read(bytes, model);
  const mode = name.endsWith("-raw.dtm") ? "raw" : "compact";
  const written = write(found, mode, name.endsWith("-compact.dtm") ? model : null);
  return [name, [...found.codes], [...found.mask].join(""), String(written) === String(bytes)];
}});
"""


def test_golden_files_in_this_browser(loaded: Page):
    facts = json.loads((GOLDEN / "golden.json").read_text())
    files = {path.name: base64.b64encode(path.read_bytes()).decode() for path in sorted(GOLDEN.glob("*.dtm"))}
    given = json.dumps({"files": files, "statistics": facts["statistics"]})
    answers = loaded.promise(READ_GOLDEN.format(given=given))
    assert len(answers) == len(files)
    for name, codes, mask, same in answers:
        expected = facts[name.split("-")[0]]
        assert (codes, mask, same) == (expected["codes"], expected["mask"], True)


@contextmanager
def hosted(folder: Path) -> Iterator[str]:
    """As a host that knows nothing of the page serves files."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_any_host_will_do_and_later_none(files: Files, small: DTMCodec, tmp_path: Path):
    """A plain host, and the page in a folder below it; then no server at all. Here, all is computed in one piece."""
    write_folder(files, tmp_path / "host" / "below" / "page")
    with browser(tmp_path, cut_off=True) as page:
        with hosted(tmp_path / "host") as url:
            opened(page, f"{url}/below/page/")
            page.until(lambda: page.script(CONTROLLED), "the page was not stored")
            assert not page.script("return crossOriginIsolated"), "this host sends no headers"
        page.open("about:blank")
        page.open(f"{url}/below/page/")
        give(page, sample_path("amiable"))  # while the model is being loaded
        assert page.text("source-name") == "amiable.flac", "the first sample must not replace what a user gave"
        dtm, heard = results(page, tmp_path)
        found = small.from_bytes(dtm)
        assert_same(found, small.encode(read_audio(sample_path("amiable"))[0], 16_000, bitrate=800))
        np.testing.assert_allclose(heard, small.decode(found), atol=1e-3)
        assert page.script("return crossOriginIsolated"), "the service worker sends them"
