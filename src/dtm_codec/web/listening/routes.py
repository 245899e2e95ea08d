"""The listening test's interface to its pages. A browser learns aliases and numbers, never a system's name."""

from __future__ import annotations

import functools
import hmac
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, HTTPException, Response
from pydantic import BaseModel, ConfigDict, Field

from ...ratings import analyse, preferences, ratings_csv
from ...ratings.preferences import Choice
from .choosing import ChoiceSession, make_choice_session
from .definition import UNIQUE_CODES
from .prepared import RATINGS_FILE, ListeningTest, load_test
from .session import Page, Session, Stimulus, make_session
from .stimuli import dithered
from .store import Listener, Store

MAX_LISTENER_NAME = 80

ListenerToken = Annotated[str, Header(alias="X-Listener-Token")]
"""What proves a listener; a header and not a cookie, so that no other site can send it."""


class ListenerRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(max_length=MAX_LISTENER_NAME)] = ""


class RatingRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    stimulus: Annotated[str, Field(max_length=64)]
    rating: Annotated[int, Field(ge=0, le=100)]


class ChoiceRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    page: Annotated[str, Field(max_length=64)]
    choice: Literal["a", "b", "none"]


class RunningTest:
    """A prepared test, and what its listeners have answered so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.test: ListeningTest = load_test(folder)
        self.store = Store(folder / RATINGS_FILE)
        self.session = functools.lru_cache(maxsize=256)(self._session)
        """The ratings that a listener of a MUSHRA test is asked for."""
        self.choice_session = functools.lru_cache(maxsize=256)(self._choice_session)
        """The choices that a listener of an A/B or A/B/X test is asked for."""

    def _session(self, listener: int) -> Session:
        return make_session(self.test, self.store.secret, listener)

    def _choice_session(self, listener: int) -> ChoiceSession:
        return make_choice_session(self.test, self.store.secret, listener)

    def stimulus(self, listener: Listener, name: str) -> Stimulus | None:
        of = self.choice_session if self.test.pairs else self.session
        return of(listener.number).stimuli.get(name)

    def state(self, listener: Listener) -> dict[str, Any]:
        """How far a listener has come: what a page needs after a reload."""
        state = self._choice_state(listener) if self.test.pairs else self._rating_state(listener)
        if state["trial"] is None:
            state["code"] = self.completion_code(listener)
        return state

    def completion_code(self, listener: Listener) -> str | None:
        code = self.test.completion_code
        return self.store.code("completion", listener.number) if code == UNIQUE_CODES else code

    def _choice_state(self, listener: Listener) -> dict[str, Any]:
        session = self.choice_session(listener.number)
        stored = {(c.trial, c.first, c.second) for c in self.store.choices(listener)}
        pairs = [(page, session.comparisons[page.name]) for page in session.trials]
        missing = [i for i, (_, c) in enumerate(pairs) if (c.utterance, *c.pair) not in stored]
        return {
            "listener": listener.label,
            "completed": len(pairs) - len(missing),
            "total": len(pairs),
            "volume": session.volume,
            "training": asdict(session.training) if session.training else None,
            "trial": {"number": missing[0] + 1, **asdict(pairs[missing[0]][0])} if missing else None,
        }

    def choose(self, listener: Listener, request: ChoiceRequest) -> dict[str, Any]:
        asked = self.choice_session(listener.number).comparisons.get(request.page) if self.test.pairs else None
        if asked is None or not asked.counted:
            raise HTTPException(404, "no such page to answer")
        if request.choice == "none" and not self.test.no_preference:
            raise HTTPException(422, "choice = 'none'; allowed: 'a' or 'b'")
        chosen = {"a": asked.a, "b": asked.b, "none": ""}[request.choice]
        first, second = asked.pair
        answer = Choice(listener.label, asked.utterance, first, second, asked.x, chosen)
        stored, new = self.store.choose(listener, answer)
        return {"page": request.page, "choice": {asked.a: "a", asked.b: "b", "": "none"}[stored], "new": new}

    def _rating_state(self, listener: Listener) -> dict[str, Any]:
        session, rated = self.session(listener.number), self.store.ratings_of(listener)

        def page(of: Page) -> dict[str, Any]:
            keys = {name: (session.stimuli[name].utterance, session.stimuli[name].system) for name in of.stimuli}
            stored = [{"id": name, "rating": rated.get(key)} for name, key in keys.items()]
            return {"reference": of.reference, "stimuli": stored}

        pages = [page(trial) for trial in session.trials]
        missing = [i for i, p in enumerate(pages) if any(stimulus["rating"] is None for stimulus in p["stimuli"])]
        return {
            "listener": listener.label,
            "completed": len(pages) - len(missing),
            "total": len(pages),
            "volume": session.volume,
            "training": page(session.training) if session.training else None,
            "trial": {"number": missing[0] + 1, **pages[missing[0]]} if missing else None,
        }

    def sound(self, name: str, stimulus: Stimulus) -> bytes:
        """A stimulus as this listener gets it: no two of a test have the same bytes."""
        path = self.test.audio_path(self.folder, stimulus.utterance, stimulus.system)
        return dithered(path.read_bytes(), hmac.digest(self.store.secret, name.encode(), "sha256"))

    def results(self, screening: bool = True) -> dict[str, Any]:
        results = self._preferences() if self.test.pairs else self._ratings(screening)
        return {"title": self.test.title, "method": self.test.method, **results}

    def _preferences(self) -> dict[str, Any]:
        choices = self.store.choices()
        counts = Counter(choice.listener for choice in choices)
        results = preferences.analyse(choices, self.test.pairs, discrimination=self.test.method == "abx")
        return {
            "preferences": [asdict(result) for result in results],
            "listeners": self._listener_rows(counts, self.test.trials_per_listener),
        }

    def _ratings(self, screening: bool) -> dict[str, Any]:
        ratings = self.store.ratings()
        counts = Counter(rating.listener for rating in ratings)
        results = analyse(ratings, self.test.systems, screening=screening)
        expected = self.test.trials_per_listener * len(self.test.systems)
        return {
            "all_excluded": results.all_excluded,
            "scores": [asdict(score) for score in results.scores],
            "pairs": [asdict(pair) for pair in results.pairs],
            "listeners": self._listener_rows(counts, expected, results.excluded),
        }

    def _listener_rows(
        self, counts: Counter[str], expected: int, excluded: Collection[str] = ()
    ) -> list[dict[str, Any]]:
        """counts: answers by label. expected: of each listener."""
        return [
            {
                "label": listener.label,
                "name": listener.name,
                "ratings": counts[listener.label],
                "expected": expected,
                "excluded": listener.label in excluded,
                "code": self.completion_code(listener),
            }
            for listener in self.store.listeners()
        ]


def listening_routes(running: RunningTest, admin_token: str) -> APIRouter:
    """Routes of the listeners' and the experimenter's page."""
    router = APIRouter(prefix="/api/listening")
    test, store = running.test, running.store

    def known(token: str) -> Listener:
        listener = store.listener(token)
        if listener is None:
            raise HTTPException(401, "this browser holds no place in this test; start it anew")
        return listener

    def experimenter(authorization: Annotated[str, Header()] = "") -> None:
        if not hmac.compare_digest(authorization.encode(), f"Bearer {admin_token}".encode()):
            raise HTTPException(401, "results need the token that the server printed when it started")

    @router.get("")
    def describe() -> dict[str, Any]:
        return {
            "title": test.title,
            "instructions": test.instructions,
            "trials": test.trials_per_listener,
            "stimuli": len(test.systems),
            "method": test.method,
            "no_preference": test.no_preference,
            "training": test.training is not None,
        }

    @router.post("/listeners", status_code=201)
    def start(request: ListenerRequest) -> dict[str, Any]:
        token, listener = store.add_listener(request.name.strip())
        return {"token": token, **running.state(listener)}

    @router.get("/session")
    def session(token: ListenerToken = "") -> dict[str, Any]:
        return running.state(known(token))

    @router.get("/stimuli/{name}")
    def stimulus(name: str, token: ListenerToken = "") -> Response:
        found = running.stimulus(known(token), name)
        if found is None:
            raise HTTPException(404, "no such stimulus")
        return Response(running.sound(name, found), media_type="audio/wav")

    @router.post("/ratings")
    def rate(request: RatingRequest, token: ListenerToken = "") -> dict[str, Any]:
        listener = known(token)
        found = running.stimulus(listener, request.stimulus)
        if found is None or not found.rated:
            raise HTTPException(404, "no such stimulus to rate")
        stored, new = store.rate(listener, found.utterance, found.system, request.rating)
        return {"stimulus": request.stimulus, "rating": stored, "new": new}

    @router.post("/choices")
    def choose(request: ChoiceRequest, token: ListenerToken = "") -> dict[str, Any]:
        return running.choose(known(token), request)

    @router.get("/results", dependencies=[Depends(experimenter)])
    def results(screening: bool = True) -> dict[str, Any]:
        return running.results(screening)

    @router.get("/ratings.csv", dependencies=[Depends(experimenter)])
    def csv_file() -> Response:
        headers = {"Content-Disposition": 'attachment; filename="ratings.csv"'}
        text = preferences.choices_csv(store.choices()) if test.pairs else ratings_csv(store.ratings())
        return Response(text, media_type="text/csv; charset=utf-8", headers=headers)

    return router
