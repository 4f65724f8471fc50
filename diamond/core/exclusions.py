"""The table of features that cannot be combined in a run or a federation, read by all checks."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Literal

Features = Mapping[str, Any]  # by the names of the table: whether a run has each of them
Pair = tuple[str, str]


@dataclass(frozen=True)
class Exclusion:
    """Row of the table: none of `features` can be combined with any of `others`.

    `scope` is "sites" if only a federation of sites refuses the combination.
    """

    features: str  # one or several, with commas
    others: str
    reason: str
    remedy: str = "leave out one of the two"
    scope: Literal["both", "sites"] = "both"
    kind: Literal["cannot be right", "not written yet"] = "cannot be right"

    @property
    def pairs(self) -> list[Pair]:
        """All pairs of a feature and another one."""
        return [*product(self.features.split(", "), self.others.split(", "))]

    def message(self, pair: Pair, place: str, remedy: str = "") -> str:
        """Return the error message for a pair: place, cause and remedy."""
        remedy = remedy or self.remedy
        return f"{place} cannot combine {' with '.join(pair)}: {self.reason}; {remedy}"


_unwritten = partial(Exclusion, kind="not written yet")
_NO_MEANS = "take a method without exact means, such as diamond, or leave out the other"
EXCLUSIONS = (
    Exclusion("channels", "masked sums",
              "channels change messages on their way, so that masks no longer cancel"),
    _unwritten("channels", "robust mixing, liars",
               "robust mixing and lies take messages without channels"),
    _unwritten("channels", "interrupted links, exchange_every, given interruptions",
               "channels need every message", "exchange in every round"),
    Exclusion("compression", "a second compression", "one compression is enough"),
    Exclusion("compressed differences", "lossy channels",
              "differences need every message to arrive",
              "compress with feedback='error', or send without loss"),
    Exclusion("channels with memory", "changing links",
              "what receivers remember of their neighbours needs links that stay the same",
              "compress with feedback='error', or noise with accumulate=False"),
    Exclusion("simulated channels", "sites", "links between sites are what they are",
              "take one compression, and delays after it", "sites"),
    _unwritten("channels", "missing='continue', missing='asynchronous'",
               "compressed messages build on one another, so that none may be missing",
               "run with missing='wait', or a network without channels", "sites"),
    Exclusion("robust mixing, liars, signatures", "masked sums",
              "robust mixing, lies and signatures use single messages, which masked sums hide"),
    _unwritten("robust mixing, liars, masked sums", "changing links, one-way links, "
               "interrupted links, exchange_every, given interruptions",
               "they are written for symmetric links that stay the same"),
    Exclusion("robust mixing", "trackers",
              "this method sends trackers or corrects x by sums over the network, in which the "
              "error of robust mixing would accumulate",
              "take a gossip method, such as dsgd or m_sgd, or d_soba for a common lower level"),
    Exclusion("masked sums", "further masks", "messages are masked already", "mask them once"),
    Exclusion("masked sums, privacy", "open numbers",
              "an open number is measured on the rows and sent in the clear",
              "give all numbers of the method"),
    Exclusion("masked sums", "missing='continue', missing='asynchronous', a deadline",
              "masks cancel only in the sum of all neighbours, so that none may be missing",
              "run with missing='wait' and without a deadline", "sites"),
    _unwritten("masked sums", "--onward", "the last point of each site would be sent in the clear",
               "start all sites with --restart", "sites"),
    Exclusion("privacy", "a learned alpha",
              "it is computed from unprotected measurements", "give alpha, as in dsgd(alpha=0.1)"),
    Exclusion("released y and z", "learned steps", "steps are learned from unprotected rows",
              "give all step sizes, or use clipping='whole' with a personal lower level"),
    _unwritten("privacy", "a method that is not composed of parts", "parts add the noise",
               "use a method such as diamond.dsgd(alpha=...) or diamond.compose(...)"),
    Exclusion("privacy", "sums of directions", "noise adds up in them without bound",
              "use a method with a plain, average or momentum estimator"),
    Exclusion("privacy", "streams",
              "privacy is that of stored rows, and a stream has none", "give rows as arrays"),
    Exclusion("privacy", "on_divergence='shrink'",
              "it computes rounds again, each of which spends privacy", "use on_divergence='stop'"),
    Exclusion("privacy", "stop by a measure", "measures depend on the rows without noise",
              "stop by rounds, samples or bytes"),
    Exclusion("privacy", "--share-loss", "it shows the loss on this site's rows without noise",
              "leave out --share-loss", "sites"),
    _unwritten("exact means", "interrupted links, skipping agents",
               "its agents exchange in some rounds only", _NO_MEANS),
    Exclusion("exact means", "inexact channels", "its channels change messages", _NO_MEANS),
    _unwritten("exact means", "masked sums", "its messages are masked", _NO_MEANS),
    Exclusion("exact means", "robust mixing, liars", "its agents may lie", _NO_MEANS),
    _unwritten("exact means", "privacy", "the run is private", _NO_MEANS, "sites"),
    Exclusion("exact means", "missing='continue', missing='asynchronous'",
              "rounds continue without absent sites",
              _NO_MEANS, "sites"),
    _unwritten("exchange_every, given interruptions", "changing links, interrupted links",
               "links are interrupted in rounds of a constant network", "take a constant network"),
    _unwritten("given interruptions", "one-way links",
               "the weight of a link that is down moves to both ends", "take undirected links"),
    Exclusion("a method for symmetric weights", "balanced weights, directed weights",
              "this algorithm needs symmetric weights that stay the same", "take another method"),
    Exclusion("a method for balanced weights", "directed weights",
              "this algorithm needs balanced weights", "take another method"),
    _unwritten("sites", "changing links, one-way links, interrupted links",
               "sites ask each other both ways, over links that stay the same",
               "take an undirected constant network, or simulate it", "sites"),
    Exclusion("a deadline", "missing='wait', missing='asynchronous'",
              "a deadline ends rounds without late sites",
              "set missing = \"continue\"", "sites"),
    Exclusion("missing='asynchronous'", "a method for symmetric weights",
              "its corrections cancel only if both ends of a link use the same messages",
              "take gossip or gradient tracking, such as dsgd or gt_sgd", "sites"),
    Exclusion("missing='asynchronous'", "open numbers",
              "all sites agree on an open number in a round that they count alike",
              "give all numbers of the method", "sites"),
    _unwritten("missing='asynchronous'", "robust mixing, liars, signatures, privacy, "
               "interrupted links, timed links, several exchanges, a common lower level",
               "it is written for a round that all sites count alike", scope="sites"),
    _unwritten("a deadline", "interrupted links, changing links",
               "a deadline needs an exchange in every round", scope="sites"),
    _unwritten("changing members", "exchange_every, given interruptions",
               "interruptions are written for members that stay the same",
               "give networks whose agents exchange in every round"),
    _unwritten("changing members", "channels, liars, changing links, one-way links, timed links, "
               "nested members",
               "each network must be undirected and constant, with perfect links"),
    Exclusion("changing members with missing='continue'", "open numbers",
              "the members would have to agree on the number at the change, also absent ones",
              "give all numbers of the method", "sites"),
    _unwritten("changing members", "missing='asynchronous'",
               "sites that are rounds apart would change their members in different rounds",
               scope="sites"),
    Exclusion("missing='continue'", "--rewind",
              "nobody waits for a lost site, and an absent one may lack that checkpoint",
              "give a --from-round that no site has begun", "sites"),
    Exclusion("privacy", "--rewind", "it computes rounds again, whose messages would have the "
              "same noise", "start all sites with --restart", "sites"),
    _unwritten("signatures", "authorities",
               "proofs name a site by a certificate of the federation",
               "let the federation issue all certificates", "sites"),
    _unwritten("changing members", "sites", "sites take their members from rosters",
               "give a constant network, and change members by `diamond net change`", "sites"),
    _unwritten("changing members", "several devices, rows in other processes, sharded models, "
               "parallel runs, backend, resume, on_progress",
               "each set of members has a program of its own", "use diamond.simulate on one device "
               "without this option"),
    _unwritten("changing members", "streams", "rows of a stream are drawn for fixed members",
               "take stored rows"),
    _unwritten("changing members", "a table of rows",
               "the table is as long as the rows of the largest member", "take diamond.gt_sgd()"),
    Exclusion("changing members", "push-sum weights, a state without restart",
              "it has no meaning after members change",
              "take gossip or gradient tracking with alpha, such as diamond.dsgd(alpha=...)"),
    _unwritten("several devices", "channels, robust mixing, liars, masked sums, skipping agents",
               "they run on one device", "leave devices out"),
    _unwritten("several processes", "sharded models",
               "sharding inside an agent needs one process", "leave out shard"),
    _unwritten("memory='least'", "several devices, sharded models",
               "agents then work one after another on one device", "leave out devices and shard"),
    _unwritten("batched=True", "stop, resume", "batched=True runs all rounds from the start",
               "leave out stop and resume"),
    Exclusion("a table of rows", "streams", "a stream never gives a row twice",
              "take a method without a table, such as diamond.diamond()"),
    Exclusion("all rows", "streams", "this method asks for all rows, and a stream has no end",
              "take mini-batches, as in diamond.diamond(), or give the number of fresh rows that "
              "stand for all, as in diamond.stream(draw, ..., large=4096)"),
)  # fmt: skip
_PAIRS = [(row, pair) for row in EXCLUSIONS for pair in row.pairs]
_NAMES = {name for _, pair in _PAIRS for name in pair}


def find_exclusions(features: Features, scope: str = "both") -> list[tuple[Exclusion, Pair]]:
    """Return the pairs of these features that cannot be combined, each with its row."""
    if unknown := features.keys() - _NAMES:
        raise KeyError(*unknown)
    scopes = "both", scope
    return [p for p in _PAIRS if p[0].scope in scopes and all(map(features.get, p[1]))]


def check_combination(
    features: Features,
    place: str,
    scope: str = "both",
    remedy: str = "",
    *,
    error: type[ValueError] = ValueError,
) -> None:
    """Raise `error` if two features cannot be combined; `remedy` replaces that of the table."""
    for row, pair in find_exclusions(features, scope):
        raise error(row.message(pair, place, remedy))
