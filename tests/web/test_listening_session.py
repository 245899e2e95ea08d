import collections
import dataclasses
import io
import json
import shutil
import sqlite3

import numpy as np
import pytest
import soundfile
from fastapi.testclient import TestClient
from web_support import ADMIN, SYSTEMS, make_prepared

from dtm_codec.errors import ConfigError
from dtm_codec.speech.audio import read_audio
from dtm_codec.web.app import create_app
from dtm_codec.web.listening.prepared import ListeningTest
from dtm_codec.web.listening.routes import RunningTest
from dtm_codec.web.listening.session import make_session
from dtm_codec.web.listening.store import Store

TEST = ListeningTest("t", "", 5, tuple(f"u{i}" for i in range(20)), "train", ("reference", "anchor", "x", "y"), 8)
SECRET = b"s" * 32


def plan(session):
    return [
        [(session.stimuli[name].utterance, session.stimuli[name].system) for name in t.stimuli] for t in session.trials
    ]


def test_a_seed_fixes_what_each_listener_gets():
    assert plan(make_session(TEST, SECRET, 1)) == plan(make_session(TEST, b"other", 1))
    assert plan(make_session(TEST, SECRET, 1)) != plan(make_session(TEST, SECRET, 2))


def test_trials_are_drawn_without_repetition_and_every_page_has_every_system():
    used = collections.Counter()
    firsts = collections.Counter()
    for listener in range(1, 201):
        trials = plan(make_session(TEST, SECRET, listener))
        assert len({trial[0][0] for trial in trials}) == 8
        assert all(sorted(system for _, system in trial) == sorted(TEST.systems) for trial in trials)
        used.update(trial[0][0] for trial in trials)
        firsts.update(trial[0][1] for trial in trials)
    assert min(used.values()) > 50, "each utterance about 80 times"
    assert min(firsts.values()) > 300, "each system about 400 times the first of its page"


def test_aliases_are_all_different_and_differ_between_listeners():
    one, two = make_session(TEST, SECRET, 1), make_session(TEST, SECRET, 2)
    assert len(one.stimuli) == 9 * 5
    assert not set(one.stimuli) & set(two.stimuli)


def test_a_system_of_any_name_is_not_the_open_reference():
    names = ("open", "hidden", "4:open")
    session = make_session(dataclasses.replace(TEST, systems=("reference", "anchor", *names)), SECRET, 1)
    assert len(session.stimuli) == 9 * 6
    assert all(session.stimuli[page.reference].system == "reference" for page in session.trials)


def test_only_trials_are_rated():
    session = make_session(TEST, SECRET, 1)
    assert sum(stimulus.rated for stimulus in session.stimuli.values()) == 8 * 4
    assert not any(session.stimuli[name].rated for name in session.training.stimuli)
    assert not any(session.stimuli[trial.reference].rated for trial in session.trials)


class Listener:
    """What a browser does."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        started = client.post("/api/listening/listeners", json={"name": "Ann"})
        assert started.status_code == 201
        self.headers = {"X-Listener-Token": started.json()["token"]}

    def state(self) -> dict:
        return self.client.get("/api/listening/session", headers=self.headers).json()

    def rate(self, stimulus: str, rating: int) -> dict:
        body = {"stimulus": stimulus, "rating": rating}
        answer = self.client.post("/api/listening/ratings", json=body, headers=self.headers)
        assert answer.status_code == 200, answer.text
        return answer.json()


def test_a_test_taken_to_the_end_is_what_the_results_say(listening_client: TestClient, running: RunningTest):
    wanted = {"reference": 100, "anchor": 20} | {name: 90 - 10 * i for i, name in enumerate(SYSTEMS)}
    for number in (1, 2):
        listener = Listener(listening_client)
        state = listener.state()
        assert (state["completed"], state["total"]) == (0, 3)
        while trial := state["trial"]:
            assert trial["number"] == state["completed"] + 1
            for stimulus in trial["stimuli"]:
                listener.rate(stimulus["id"], wanted[running.session(number).stimuli[stimulus["id"]].system])
            state = listener.state()
        assert state["completed"] == 3
    admin = {"Authorization": f"Bearer {ADMIN}"}
    results = listening_client.get("/api/listening/results", headers=admin).json()
    assert {score["system"]: score["mean"] for score in results["scores"]} == wanted
    assert [score["ratings"] for score in results["scores"]] == [6] * 5
    assert [person["ratings"] for person in results["listeners"]] == [15, 15]
    lines = listening_client.get("/api/listening/ratings.csv", headers=admin).text.splitlines()
    assert lines[0] == "listener,trial,system,rating"
    assert len(lines) == 1 + 30


def test_the_browser_never_learns_a_system(listening_client: TestClient):
    listener = Listener(listening_client)
    state = listener.state()
    seen = json.dumps(state) + json.dumps(listening_client.get("/api/listening").json())
    for name in (*SYSTEMS, "anchor", "utt"):
        assert name not in seen
    trial = state["trial"]
    answers = [
        listening_client.get(f"/api/listening/stimuli/{name}", headers=listener.headers)
        for name in (trial["reference"], *(stimulus["id"] for stimulus in trial["stimuli"]))
    ]
    assert len({len(answer.content) for answer in answers}) == 1
    assert len({tuple(sorted(answer.headers.items())) for answer in answers}) == 1, "headers tell nothing either"
    assert read_audio(answers[0].content)[0].size == 12_000


def test_no_two_sounds_of_a_page_have_the_same_bytes_and_all_have_the_same_size(
    listening_client: TestClient, running: RunningTest
):
    """Else a script finds the hidden reference by comparing."""
    sounds, hashes = {}, set()
    for _ in range(2):
        state = listening_client.post("/api/listening/listeners", json={}).json()
        headers = {"X-Listener-Token": state["token"]}
        trial = state["trial"]
        names = [trial["reference"], *(stimulus["id"] for stimulus in trial["stimuli"])]
        for name in names:
            answer = listening_client.get(f"/api/listening/stimuli/{name}", headers=headers)
            again = listening_client.get(f"/api/listening/stimuli/{name}", headers=headers)
            assert answer.content == again.content
            sounds[name] = answer.content
        hashes |= {hash(sounds[name]) for name in names}
        assert len({len(sounds[name]) for name in names}) == 1
    assert len(hashes) == len(sounds) == 2 * 6


def test_what_is_added_to_a_sound_is_not_heard(running: RunningTest):
    session = running.session(1)
    name = session.trials[0].reference
    stimulus = session.stimuli[name]
    stored = running.test.audio_path(running.folder, stimulus.utterance, stimulus.system)
    plain, _ = soundfile.read(stored, dtype="int16")
    sent, _ = soundfile.read(io.BytesIO(running.sound(name, stimulus)), dtype="int16")
    difference = sent.astype(int) - plain
    assert set(np.unique(difference)) == {-1, 0, 1}
    assert 20 * np.log10(np.sqrt(np.mean(difference**2.0)) / 32768) < -90


def test_results_without_anyone_left_say_so_and_offer_all(listening_client: TestClient, running: RunningTest):
    listener = Listener(listening_client)
    for stimulus in listener.state()["trial"]["stimuli"]:
        listener.rate(stimulus["id"], 10)
    admin = {"Authorization": f"Bearer {ADMIN}"}
    screened = listening_client.get("/api/listening/results", headers=admin).json()
    assert (screened["all_excluded"], screened["scores"]) == (True, [])
    everyone = listening_client.get("/api/listening/results?screening=false", headers=admin).json()
    assert (everyone["all_excluded"], len(everyone["scores"])) == (False, 5)


def test_a_second_submission_changes_nothing(listening_client: TestClient, running: RunningTest):
    listener = Listener(listening_client)
    stimulus = listener.state()["trial"]["stimuli"][0]["id"]
    assert listener.rate(stimulus, 70) == {"stimulus": stimulus, "rating": 70, "new": True}
    assert listener.rate(stimulus, 30) == {"stimulus": stimulus, "rating": 70, "new": False}
    assert listener.state()["trial"]["stimuli"][0]["rating"] == 70
    assert [rating.rating for rating in running.store.ratings()] == [70]


def test_one_file_has_every_rating_while_the_test_runs(running: RunningTest, tmp_path):
    _, listener = running.store.add_listener("Ann")
    running.store.rate(listener, "utt1", "poor", 70)
    shutil.copy(running.folder / "ratings.sqlite", tmp_path / "copy.sqlite")
    assert [rating.rating for rating in Store(tmp_path / "copy.sqlite").ratings()] == [70]


def test_a_copy_that_cannot_be_written_can_be_read(running: RunningTest, tmp_path, monkeypatch: pytest.MonkeyPatch):
    _, listener = running.store.add_listener("")
    running.store.rate(listener, "utt1", "middling", 70)
    connect = sqlite3.connect

    def read_only(path, **options):
        return connect(f"file:{path}?mode=ro", uri=True, **options)

    monkeypatch.setattr(sqlite3, "connect", read_only)
    copy = Store(running.folder / "ratings.sqlite")
    assert copy.secret == running.store.secret
    assert [rating.rating for rating in copy.ratings()] == [70]
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(ConfigError, match=r"empty\.sqlite: cannot be used as the ratings' database"):
        Store(tmp_path / "empty.sqlite")


def test_what_is_not_to_be_rated_is_not(listening_client: TestClient, running: RunningTest):
    listener, other = Listener(listening_client), Listener(listening_client)
    state = listener.state()
    for stimulus in (
        state["training"]["stimuli"][0]["id"],
        state["trial"]["reference"],
        other.state()["trial"]["stimuli"][0]["id"],
    ):
        body = {"stimulus": stimulus, "rating": 50}
        assert listening_client.post("/api/listening/ratings", json=body, headers=listener.headers).status_code == 404
    assert running.store.ratings() == []


def test_a_restart_keeps_listeners_aliases_and_ratings(tmp_path, speech, client):
    make_prepared(tmp_path, speech)
    before = RunningTest(tmp_path / "test")
    listener = Listener(client(create_app(listening=before, admin_token="a")))
    listener.rate(listener.state()["trial"]["stimuli"][0]["id"], 44)
    state = listener.state()
    before.store.close()
    after = RunningTest(tmp_path / "test")
    listener.client = client(create_app(listening=after, admin_token="b"))
    assert listener.state() == state
    after.store.close()


def test_the_database_itself_refuses_what_is_no_rating(tmp_path):
    import sqlite3

    store = Store(tmp_path / "r.sqlite")
    _, listener = store.add_listener("x")
    for rating in (101, -1, 5.5):
        with pytest.raises(sqlite3.IntegrityError):
            store._connection.execute(
                "INSERT INTO ratings (listener, trial, system, rating) VALUES (1, 'a', 'b', ?)", (rating,)
            )
    assert store.rate(listener, "a", "b", 0) == (0, True)
    store.close()
