"""A/B and A/B/X: what listeners get, what is stored, what the results say; codes of listeners."""

import collections
import json
from pathlib import Path

import pytest
from web_support import ADMIN, SYSTEMS, make_prepared

from dtm_codec.errors import ConfigError
from dtm_codec.ratings import ANCHOR, REFERENCE
from dtm_codec.speech.audio import read_audio, write_audio
from dtm_codec.web.app import create_app
from dtm_codec.web.listening import webmushra
from dtm_codec.web.listening.choosing import make_choice_session
from dtm_codec.web.listening.definition import Definition, load_definition
from dtm_codec.web.listening.prepared import ListeningTest, load_test, prepare
from dtm_codec.web.listening.routes import RunningTest

PAIRS = (("x", "y"), ("x", "z"), ("reference", "y"))
SECRET = b"s" * 32


def prepared(method: str, trials: int = 9) -> ListeningTest:
    utterances = tuple(f"u{i}" for i in range(10))
    return ListeningTest("t", "", 5, utterances, "train", ("reference", "x", "y", "z"), trials, method, PAIRS)


def test_each_pair_has_its_share_and_sides_and_x_are_drawn():
    sides, xs, pairs = collections.Counter(), collections.Counter(), collections.Counter()
    for listener in range(1, 201):
        session = make_choice_session(prepared("abx"), SECRET, listener)
        asked = [session.comparisons[page.name] for page in session.trials]
        assert len({(c.utterance, c.pair) for c in asked}) == 9, "nothing is asked twice"
        assert set(collections.Counter(c.pair for c in asked).values()) == {3}
        pairs.update(c.pair for c in asked[:1])
        sides.update(c.a == c.pair[0] for c in asked)
        xs.update(c.x == c.a for c in asked)
    for drawn in (sides, xs):
        assert 0.45 < drawn[True] / drawn.total() < 0.55
    assert min(pairs.values()) > 40, "no pair is always the first"


def test_a_seed_fixes_what_a_listener_gets_and_names_tell_nothing():
    one, again = (make_choice_session(prepared("abx"), secret, 1) for secret in (SECRET, b"other"))
    assert list(one.comparisons.values()) == list(again.comparisons.values())
    assert not set(one.stimuli) & set(again.stimuli)
    sounds = [name for page in (*one.trials, one.training) for name in page.sounds]
    assert len(set(sounds)) == len(sounds) == 3 * 10, "X is not A or B by name"


def test_in_ab_there_is_no_x_and_training_does_not_count():
    session = make_choice_session(prepared("ab"), SECRET, 1)
    assert all(len(page.sounds) == 2 for page in session.trials)
    assert not session.comparisons[session.training.name].counted
    assert all(session.comparisons[page.name].counted for page in session.trials)


@pytest.fixture
def running(tmp_path: Path, speech, request):
    make_prepared(tmp_path, speech, **request.param)
    test = RunningTest(tmp_path / "test")
    yield test
    test.store.close()


def as_listener(client, name="Ann"):
    started = client.post("/api/listening/listeners", json={"name": name}).json()
    return {"X-Listener-Token": started.pop("token")}, started


@pytest.mark.parametrize("running", [{"method": "abx", "completion_code": "unique"}], indirect=True)
def test_an_abx_test_taken_to_the_end_is_what_the_results_say(running: RunningTest, client):
    web = client(create_app(listening=running, admin_token=ADMIN))
    codes, labels = set(), set()
    for number in (1, 2):
        headers, state = as_listener(web)
        assert (state["completed"], state["total"]) == (0, 9)  # 3 utterances by 3 pairs
        assert "code" not in state, "not before the end"
        seen = json.dumps(state) + json.dumps(web.get("/api/listening").json())
        assert not any(name in seen for name in (*SYSTEMS, "utt", f'"{REFERENCE}"'))
        sizes = {len(web.get(f"/api/listening/stimuli/{s}", headers=headers).content) for s in state["trial"]["sounds"]}
        assert len(sizes) == 1
        while trial := state["trial"]:
            asked = running.choice_session(number).comparisons[trial["name"]]
            right = "a" if asked.x == asked.a else "b"
            wrong = {"a": "b", "b": "a"}[right]
            choice = right if "poor" in asked.pair or number == 1 else wrong
            for sent in (choice, {"a": "b", "b": "a"}[choice]):  # the second submission changes nothing
                body = {"page": trial["name"], "choice": sent}
                answer = web.post("/api/listening/choices", json=body, headers=headers)
                assert answer.json()["choice"] == choice, answer.text
            state = web.get("/api/listening/session", headers=headers).json()
        codes.add(state["code"])
        labels.add(state["listener"])
    assert len(codes | labels) == 4, "every code is another one"
    admin = {"Authorization": f"Bearer {ADMIN}"}
    results = web.get("/api/listening/results", headers=admin).json()
    assert {(r["first"], r["second"]): r["share"]["share"] for r in results["preferences"]} == {
        ("good <i>&", "middling"): 0.5,
        ("good <i>&", "poor"): 1.0,
        ("middling", "poor"): 1.0,
    }
    assert {row["code"] for row in results["listeners"]} == codes
    assert len(web.get("/api/listening/ratings.csv", headers=admin).text.splitlines()) == 1 + 18


@pytest.mark.parametrize("running", [{"method": "ab", "completion_code": "C0DE"}], indirect=True)
def test_what_is_no_answer_is_refused(running: RunningTest, client):
    web = client(create_app(listening=running, admin_token=ADMIN))
    headers, state = as_listener(web)
    other, others = as_listener(web)
    for page, choice, status in (
        (state["trial"]["name"], "none", 422),  # the test does not allow it
        (state["trial"]["name"], "x", 422),
        (state["training"]["name"], "a", 404),
        (others["trial"]["name"], "a", 404),
        ("nothing", "a", 404),
    ):
        body = {"page": page, "choice": choice}
        assert web.post("/api/listening/choices", json=body, headers=headers).status_code == status
    rating = {"stimulus": state["trial"]["sounds"][0], "rating": 50}
    assert web.post("/api/listening/ratings", json=rating, headers=headers).status_code == 404
    assert running.store.choices() == running.store.ratings() == []
    assert web.get("/api/listening/session", headers=other).json() == others


@pytest.mark.parametrize("running", [{"completion_code": "C0DE"}], indirect=True)
def test_a_mushra_test_takes_no_choices_and_has_a_code_at_its_end(running: RunningTest, client):
    web = client(create_app(listening=running, admin_token=ADMIN))
    headers, state = as_listener(web)
    body = {"page": state["trial"]["stimuli"][0]["id"], "choice": "a"}
    assert web.post("/api/listening/choices", json=body, headers=headers).status_code == 404
    while state["trial"]:
        assert "code" not in state
        for stimulus in state["trial"]["stimuli"]:
            web.post("/api/listening/ratings", json={"stimulus": stimulus["id"], "rating": 50}, headers=headers)
        state = web.get("/api/listening/session", headers=headers).json()
    assert state["code"] == "C0DE"


def test_numbers_of_listeners_cannot_be_guessed_and_survive_a_restart(tmp_path: Path, speech):
    make_prepared(tmp_path, speech)
    before = RunningTest(tmp_path / "test")
    labels = [before.store.add_listener("x")[1].label for _ in range(200)]
    before.store.close()
    after = RunningTest(tmp_path / "test")
    assert [listener.label for listener in after.store.listeners()] == labels
    after.store.close()
    assert len(set(labels)) == 200
    assert sorted(labels) != labels
    make_prepared(tmp_path / "another", speech)
    another = RunningTest(tmp_path / "another" / "test")
    assert another.store.add_listener("x")[1].label not in labels, "another test, other numbers"
    another.store.close()


def test_one_system_is_compared_with_the_reference_and_there_is_no_anchor(tmp_path: Path, speech):
    (tmp_path / "original").mkdir()
    for stem in "ab":
        write_audio(tmp_path / "original" / f"{stem}.wav", speech[:16_000], 16_000)
    (tmp_path / "test.yaml").write_text("reference: original\nmethod: abx\nsystems: {same: 'folder:original?name=X'}\n")
    test = prepare(load_definition(tmp_path / "test.yaml"), tmp_path / "out", lambda source: None)
    assert test == load_test(tmp_path / "out")
    assert test.pairs == (("same", REFERENCE),)
    assert ANCHOR not in test.systems
    assert read_audio(test.audio_path(tmp_path / "out", "b", "same"))[0].size == 16_000
    with pytest.raises(ConfigError, match="abx test"):
        webmushra.export(test, tmp_path / "out", tmp_path / "web")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "abc"}, "method = 'abc'; allowed: 'mushra', 'ab', 'abx'"),
        ({"pairs": (("x", "y"),)}, "none, with method: mushra"),
        ({"method": "ab", "pairs": (("x", "w"),)}, "two of x, y, reference"),
        ({"method": "ab", "pairs": (("x",),)}, "two of x, y, reference"),
        ({"method": "ab", "pairs": (("x", "x"),)}, "two of x, y, reference"),
        ({"method": "ab", "pairs": (("x", "y"), ("y", "x"))}, "each pair once"),
        ({"method": "abx", "no_preference": True}, "no_preference = True"),
        ({"completion_code": ""}, "completion_code = ''"),
        ({"completion_code": "a\nb"}, "completion_code"),
    ],
)
def test_a_wrong_definition_says_what_is_wrong(options: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        Definition("original", {"x": "identity", "y": "lowpass"}, **options)
