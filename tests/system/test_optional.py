"""What is not installed is named, with the command that installs it."""

from __future__ import annotations

import sys

import pytest

from dtm_codec.system.optional import MissingPackageError, import_optional, package_version


@pytest.mark.parametrize(
    ("module", "extra", "advice"),
    [
        ("scipy.signal", "web", "'scipy': pip install 'dtm-codec[web]'"),
        ("yaml", "train", "'pyyaml': pip install 'dtm-codec[train]'"),
        ("kaldi_native_fbank", "eval", "'kaldi-native-fbank': pip install 'dtm-codec[eval]'"),
        ("speechmos.dnsmos", "eval", "'speechmos': pip install speechmos librosa requests"),
        ("moonshine_onnx", "eval", "'useful-moonshine-onnx': pip install useful-moonshine-onnx"),
        ("faster_whisper", "eval", "'faster-whisper': pip install faster-whisper"),
        ("wandb", "eval", "'wandb': pip install wandb"),
    ],
)
def test_a_missing_package_comes_with_its_command(
    module: str, extra: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackageError) as caught:
        import_optional(module, extra)
    assert str(caught.value) == f"this needs the package {advice}"


def test_what_is_installed_is_given_and_has_a_version() -> None:
    assert import_optional("numpy.linalg", "eval").norm([3, 4]) == 5
    assert package_version("numpy").startswith("numpy ")
    with pytest.raises(MissingPackageError, match=r"'no-such-package': pip install 'dtm-codec\[eval\]'"):
        package_version("no_such_package")
