"""Checks of the noise that training really adds, and the observer that takes it down."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch

from fedpareto.audit.chances import UNLIKELY, Draws, cohort_chances, noise_chances
from fedpareto.federation.observer import Observer

VIEWS = ("server", "secagg", "release")
LENGTHS = (0.0, 1e-3, 0.5, 1.0, 3.0, 1e20)  # of planted updates, in units of the clipping norm


@dataclass(frozen=True)
class Terms:
    """What is stated of a round: the noise of each client, the norm of updates, who is expected."""

    sigma: float
    clip: float
    cohort: float
    clients: int
    sampling: str = "fixed"

    def of_upload(self, came):
        return self.sigma * (1.0 if self.sampling == "fixed" else (self.cohort / came) ** 0.5)

    @property
    def of_sum(self):
        return self.sigma * self.cohort**0.5


@lru_cache(maxsize=2000)
def planted(client, round, size, clip):
    """Return the update [P] that stands for a client's own: some are far longer than the norm, some short or zero."""
    direction = np.random.default_rng([client, round]).standard_normal(size)
    length = clip * LENGTHS[(client + round) % len(LENGTHS)]
    return (length * direction / np.linalg.norm(direction)).astype(np.float32)


def clipped(update, clip):
    """Return what clipping leaves of an update [P]."""
    update = update.astype(np.float64)
    return update / max(1.0, np.linalg.norm(update) / clip)


class Watch(Observer):
    """Plants updates, or zeros, and takes down what each view sees beyond their clipped sum, and who came."""

    def __init__(self, terms, zeros=False):
        self.terms, self.zeros = terms, zeros
        self.federation = 0  # of those of a block, the one to look at
        self.sent = {}  # (repeat, round, client) → [R,P]
        self.summed, self.after, self.cohorts = {}, {}, {}  # (repeat, round) → [R,P], [R,P], Cohort

    def at(self, federation, sigma):
        """Return the same with an eye on another federation of the block, with its own noise stated."""
        other = copy(self)
        other.federation, other.terms = federation, replace(self.terms, sigma=sigma)
        return other

    def plant(self, client, round, size):
        return np.zeros(size, np.float32) if self.zeros else planted(client, round, size, self.terms.clip)

    def updates(self, repeat, round, clients, updates):
        R, _, P = updates.shape
        each = np.stack([self.plant(k, round, P) for k in clients])
        return torch.from_numpy(each).expand(R, -1, -1).clone()

    def uploads(self, repeat, round, clients, takes_part, upload):
        for m, client in enumerate(clients.tolist()):
            self.sent[repeat, round, client] = upload.values[:, m].double().numpy()

    def sums(self, round, sums, cohorts):
        for s, cohort in enumerate(cohorts):
            self.cohorts[s, round] = cohort
            self.summed[s, round] = sums[s].double().numpy()

    def models(self, round, models):
        for s, each in enumerate(models):
            self.after[s, round] = each.double().numpy()

    def who(self, s, t):
        """Return the clients that came to a round."""
        cohort = self.cohorts[s, t]
        return cohort.order[: cohort.count[self.federation]]

    def clean(self, s, t, total):
        """Return the noise on a sum, in units of what is stated."""
        updates = (self.plant(k, t, len(total)) for k in self.who(s, t))
        return (total - sum(clipped(update, self.terms.clip) for update in updates)) / self.terms.of_sum

    def seen(self, view):
        """Return what a view sees beyond the clipped updates: rows of (repeat, round, client, noise)."""
        return {"server": self._server, "secagg": self._secagg, "release": self._release}[view]()

    def _server(self):
        rows = []
        for (s, t, k), values in self.sent.items():
            who = self.who(s, t)
            if k in who:
                noise = values[self.federation] - clipped(self.plant(k, t, values.shape[1]), self.terms.clip)
                rows.append((s, t, k, noise / self.terms.of_upload(len(who))))
        return rows

    def _secagg(self):
        return [(s, t, -1, self.clean(s, t, total[self.federation])) for (s, t), total in self.summed.items()]

    def _release(self):
        models = {place: model[self.federation] for place, model in self.after.items()}
        # no view sees the model before the first round
        return [
            (s, t, -1, self.clean(s, t, self.terms.cohort * (model - models[s, t - 1])))
            for (s, t), model in models.items() if t > 0
        ]

    def present(self):
        """Return who came, [S,T,K]."""
        S, T = (max(place) + 1 for place in zip(*self.cohorts, strict=True))
        out = np.zeros((S, T, self.terms.clients), dtype=bool)
        for s, t in self.cohorts:
            out[s, t, self.who(s, t)] = True
        return out


def draws(watches, view):
    """Return what a view saw of these trainings as one table of draws."""
    rows = [(i, *row) for i, watch in enumerate(watches) for row in watch.seen(view)]
    trials, repeats, rounds, clients, values = zip(*rows, strict=True)
    training = np.array(trials) * 1000 + np.array(repeats)
    return Draws(np.stack(values), {"training": training, "round": np.array(rounds), "client": np.array(clients)})


def check_noise(watches):
    """Fail where what views see beyond clipped updates is not independent Gaussian noise of the stated strength.

    Fail too where who came is not drawn anew for every training and round, all clients alike.
    """
    found = {view: noise_chances(draws(watches, view)) for view in VIEWS}
    present = np.concatenate([watch.present() for watch in watches])
    terms = watches[0].terms
    found["cohorts"] = cohort_chances(present, terms.cohort / terms.clients)
    low = {seen: {name: p for name, p in chances.items() if not p > UNLIKELY} for seen, chances in found.items()}
    lines = [f"{seen}: " + ", ".join(f"{name} ({p:.0e})" for name, p in ps.items()) for seen, ps in low.items() if ps]
    assert not lines, "; ".join(lines)


def check_clipping(watch, tolerance=1e-6):
    """Fail where an upload without noise is not its update, scaled down to the norm where it was longer."""
    clip, wrong = watch.terms.clip, []
    for (s, t, k), values in watch.sent.items():
        sent = values[watch.federation]
        norm, own = np.linalg.norm(sent), clipped(watch.plant(k, t, len(sent)), clip)
        if k in watch.who(s, t) and (norm > clip * (1 + tolerance) or np.abs(sent - own).max() > tolerance * clip):
            wrong.append((t, k, round(float(norm / clip), 3)))
    assert not wrong, f"clipping: {len(wrong)} uploads; round, client and norm in units of that allowed: {wrong[:5]}"
