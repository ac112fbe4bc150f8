"""Check that noise hides one client: it is as strong as it says, and what it lies on is bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpareto.contract import share_of_noise
from fedpareto.mechanisms import Mechanism, Upload, hides_updates, links_of
from fedpareto.noise import Noise, stream

if TYPE_CHECKING:
    from torch import Tensor

MANY = 20_000  # numbers by which noise is measured
EXPECTED = 9.0  # clients expected of a round in which another number came
STRAY = 0.02  # by which a measured strength of noise may miss the true one
LENGTHS = (0.5, 1.0, 1.5, 2.0, 4.0, 16.0)  # in norms, of updates beside far longer ones
ALIKE = 0.06  # the most that noise of two clients, or of two halves of one, may correlate


@dataclass(frozen=True)
class OtherNormal:
    """The draws of a round, but for normal ones, which are those of the next."""

    noise: Noise

    def normal(self, size: int) -> Tensor:
        mine = self.noise
        other = Noise(mine.seed, mine.round + 1, mine.clients, mine.device)
        other.draws = mine.draws
        mine.draws += 1
        return other.normal(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.noise, name)


@dataclass(frozen=True)
class Tried:
    """A mechanism, what it says of its noise, and what it is tried with."""

    mechanism: Mechanism
    values: Mapping[str, Tensor]  # name → [R]
    sigma: Tensor  # [R]
    norm: Tensor  # [R]
    clients: int
    seed: int

    @classmethod
    def of(
        cls, mechanism: Mechanism, values: Mapping[str, Tensor], cohort: float, K: int, seed: int
    ) -> Tried:
        """Return it with what a round tells: so many clients are expected, K came."""
        import torch

        R = len(next(iter(values.values()), torch.ones(1)))
        told = {"cohort": cohort, "summands": float(K), "participants": float(K)}
        known = {**values, **{name: torch.full((R,), v) for name, v in told.items()}}
        noisy: Any = mechanism
        sigma, norm = (
            torch.as_tensor(v, dtype=torch.float64).expand(R) for v in noisy.gaussian(known)
        )
        sound = bool((sigma.isfinite() & (sigma >= 0) & norm.isfinite() & (norm > 0)).all())
        assert sound, (
            "gaussian must return noise of at least 0 and a norm above 0, both finite, found "
            f"{sigma.tolist()} and {norm.tolist()}"
        )
        return cls(mechanism, known, sigma, norm, K, seed)

    def upload(self, sent: Tensor) -> Upload:
        """Return an upload of these values [R,K,P], from a model far from zero."""
        import torch

        R, K, P = sent.shape
        one = torch.ones(R, K)
        model = 10 * self.norm[:, None].float() * _direction(P, self.seed, "model")
        return Upload(sent, one * P, one * 32, one * 0, model=model.expand(R, P))

    def sent(self, update: Tensor, noise: Any = None) -> Tensor:
        """Return what is sent of updates [R,K,P], in double precision."""
        noise = noise or Noise(self.seed, 0, range(self.clients))
        return self.mechanism.protect(
            self.upload(update.clone()), self.values, noise
        ).values.double()


def check_noise(
    mechanism: Mechanism, values: Mapping[str, Tensor], K: int, P: int, seed: int
) -> None:
    """Check a mechanism that adds Gaussian noise last, with two seeds."""
    for each in (seed, seed + 1):
        tried = Tried.of(mechanism, values, float(K), K, each)
        worlds = _worlds(tried, P)
        _check_worlds(tried, worlds)
        _check_strength(tried, tried.sigma)
        _check_told(tried, worlds)
    few = Tried.of(mechanism, values, EXPECTED, K, seed)
    _check_strength(few, few.sigma * share_of_noise(EXPECTED, K))


def check_zero(mechanism: Mechanism, values: Mapping[str, Tensor], R: int, K: int, P: int) -> None:
    """Check that what has no noise sends an update of zero as zero: noise after it counts on it."""
    import torch

    if any(getattr(link, "of", "update") != "update" for link in links_of(mechanism)):
        return
    one = torch.ones(R, K)
    model = _direction(P, 0, "model").expand(R, P)
    nothing = Upload(torch.zeros(R, K, P), one * P, one * 32, one * 0, model=model)
    out = mechanism.protect(nothing, values, Noise(0, 0, range(K))).values
    assert not bool(out.any()), (
        'an update of zero must be sent as zero, or an attribute of = "parameters" must say that '
        f"it is not, found {float(out.abs().max()):g}: noise after it in a chain counts on it"
    )


def _direction(P: int, seed: int, name: str) -> Tensor:
    """Return a vector [P] of length one."""
    import torch

    drawn = torch.randn(P, generator=stream(seed, name))
    return torch.nn.functional.normalize(drawn, dim=0)


def _worlds(tried: Tried, P: int) -> dict[str, Tensor]:
    """Return updates [R,K,P] that differ in the first client's, by name; of the first, it is zero.

    The others' are the same in all of them, and as long.
    """
    import torch

    R, K = len(tried.norm), tried.clients
    unit = tried.norm[:, None].float()  # [R,1]
    everyone = torch.randn(R, K, P, generator=stream(tried.seed, "others")) * 100 * unit[:, None]
    long = 100 * unit * _direction(P, tried.seed, "long")
    even = 100 * unit.expand(R, P) * (-1.0) ** torch.arange(P)
    model = tried.upload(everyone).model
    assert model is not None
    first = {
        "zero": 0 * long,
        "long": long,
        "opposite": -long,
        **{f"{length:g} norms long": long / 100 * length for length in LENGTHS},
        "even": even,
        "across the model": -2 * model,
        "huge": even.sign() * 3e38,
        "infinite": even * torch.inf,
        "not a number": even * torch.nan,
    }
    for name, wild in (("partly infinite", torch.inf), ("partly not a number", torch.nan)):
        first[name] = long.clone()
        first[name][:, 0] = wild
    worlds = {}
    for name, update in first.items():
        worlds[name] = everyone.clone()
        worlds[name][:, 0] = update
    return worlds


def _check_worlds(tried: Tried, worlds: Mapping[str, Tensor]) -> None:
    """Check that one client moves its own upload alone, by no more than the norm says."""
    import torch

    P = worlds["zero"].shape[2]
    seen = {name: tried.sent(update) for name, update in worlds.items()}
    other = {
        name: tried.sent(update, OtherNormal(Noise(tried.seed, 0, range(tried.clients))))
        for name, update in worlds.items()
    }
    for name, sent in seen.items():
        assert bool(sent.isfinite().all()), f"an upload must be finite if the update is {name}"
    # float32 has seven digits of a number, and a model is ten norms long
    slack = 1e-5 * (11 * tried.norm + 5 * tried.sigma)  # [R]
    for name, sent in seen.items():
        gap = ((sent - other[name]) - (seen["zero"] - other["zero"])).abs().amax((1, 2))
        large = 1e-6 * sent.abs().amax((1, 2))
        assert bool((gap <= slack + large).all()), (
            "noise must be the same whatever is sent, and nothing may be done after it, found a "
            f"difference of {float(gap.max()):g} between updates that are zero and {name}"
        )
        strangers = (sent - seen["zero"])[:, 1:].abs().amax((1, 2))
        assert bool((strangers <= slack).all()), (
            "a client must not move the uploads of others: noise hides each by itself, found "
            f"{float(strangers.max()):g} where its update is {name}"
        )
    wide = 1 if hides_updates(tried.mechanism) else 2
    stacked = torch.stack([sent[:, 0] for sent in seen.values()], dim=1)  # [R,W,P]
    names = list(seen)
    for a, name in enumerate(names):
        for b, second in enumerate(names[:a]):
            most = tried.norm * (wide if second == "zero" else 2)
            moved = (stacked[:, a] - stacked[:, b]).norm(dim=1)
            assert bool((moved <= most * (1 + 1e-5) + slack * P**0.5).all()), (
                f"a client must move its upload by at most {most.tolist()}, found "
                f"{moved.tolist()} between updates that are {second} and {name}"
            )


def _check_told(tried: Tried, worlds: Mapping[str, Tensor]) -> None:
    """Check that how many numbers are sent, with how many bits and which, tells no update."""
    import torch

    told = []
    for name in ("long", "opposite"):
        upload = tried.upload(worlds[name].clone())
        thin = upload.without(upload.values < 0)  # as a link before it may have dropped numbers
        noise = Noise(tried.seed, 0, range(tried.clients))
        out = tried.mechanism.protect(thin, tried.values, noise)
        every = torch.ones_like(out.values, dtype=torch.bool)
        told.append((out.count, out.bits, every if out.sent is None else out.sent))
    same = all(torch.equal(one, other) for one, other in zip(*told, strict=True))
    assert same, (
        "count, bits and sent must not depend on the update where noise hides it: which numbers "
        "are sent would tell it. Return upload.dense(values)"
    )


def _check_strength(tried: Tried, sigma: Tensor) -> None:
    """Check that noise is normal, of this strength [R], and drawn anew for each number."""
    import torch

    R, K = len(sigma), tried.clients
    nothing = torch.zeros(R, K, MANY)
    drawn = tried.sent(nothing) - tried.sent(nothing, Noise(tried.seed, 1, range(K)))
    drawn = drawn / 2**0.5  # [R,K,MANY]
    found = drawn.std(dim=(1, 2))
    near = (found - sigma).abs() <= STRAY * sigma + 1e-5 * tried.norm
    came = f" where {K} clients came and {tried.values['cohort'][0]:g} were expected"
    assert bool(near.all()), (
        f"noise must have standard deviation {sigma.tolist()}{came}, found {found.tolist()}"
    )
    for r in torch.nonzero(sigma > 1e-4 * tried.norm)[:, 0].tolist():
        halves = drawn[r].view(K, 2, -1)  # [K,2,MANY/2]
        in_turns = drawn[r].view(K, -1, 2).transpose(1, 2)
        for parts in (halves, in_turns):
            alike = torch.corrcoef(parts.flatten(0, 1)) - torch.eye(2 * K, dtype=torch.float64)
            most = float(alike.abs().nan_to_num(nan=1.0).max())
            assert most <= ALIKE, (
                "noise must be drawn anew for each client and number, found two that correlate by "
                f"{most:.2f}"
            )
        tails = float((drawn[r] / drawn[r].std()).pow(4).mean())
        assert abs(tails - 3) <= 0.2, (
            f"noise must be normal, with a fourth moment of 3, found {tails:.2f}"
        )
