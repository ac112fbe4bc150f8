"""What the words of the page mean, plain words first."""

from __future__ import annotations

WORDS = {
    "trial": "One setting that was tried: trained as often as the study says, and measured.",
    "front": "The trials that no other beats in everything: whoever wants less of one thing has to "
    "take more of another.",
    "hypervolume": "How much the front covers, one number for all of it: the volume between the "
    "front and the reference, so more is better. It never falls as trials are added. "
    "Its share is that of the box between 0 and the reference.",
    "reference": "The corner from which hypervolume is counted: as bad as a point may be and still "
    "count.",
    "knee": "The point of the front nearest to the best of every objective at once. To either side "
    "of it, a little less of one thing costs much more of another.",
    "ε": "Epsilon: one client's (or one record's) data can change the chance of anything that is "
    "seen by a factor of e to the ε at most. Smaller is safer; 0 would tell nothing.",
    "δ": "Delta: the chance, about, that the promise of ε fails. It should be well below 1 over "
    "the number of clients (or records).",
    "view": "Who looks on, and what they see: server sees each upload, secagg the sum of a round "
    "and who took part, release the models alone.",
    "adjacency": "What two data sets may differ by to be told apart: zero_out is one client's (or "
    "record's) part left out, replace it replaced by any other.",
    "proxy": "A number that a paper uses in place of privacy. It may rank settings; it promises "
    "nothing.",
    "Poisson sampling": "Each client takes part in a round by its own chance, so that how many "
    "come differs from round to round.",
}
