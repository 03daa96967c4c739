"""Every number that was chosen and not derived, each with how."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """What the server sends, and what it takes for equal, near, few or noise.

    Where a comment names no reason beyond its own sentence, the value was set by hand and kept
    because the tests and the records held with it.
    """

    # the weights that are sent
    sample_tokens: int = 2048  # measured: their mean is known to 2 % of their spread
    size_rows: int = 4096  # of the token table, enough to show the size of all
    anchor_height: float = 3.0  # of anchors in a trained table, in sizes: above its other entries
    attention_scale: float = 1e8  # of the first scores: so large that softmax chooses one position
    masked_mixing: float = 10.0  # of the last attention: gradient for tokens that are not predicted
    sharp: float = 1e6  # size of the measurement before GELU: it then cuts like ReLU
    soft: float = 1e-3  # and before ReLU, which has no scale: the second layers' gradient is small
    flow: float = 4e-4  # of the second layers behind GELU, an entry of the width: small beside 1
    lowest_edge: float = 6.0  # standard deviations below the mean, where no token is left
    codes: float = 0.3  # labels' lie in [1, 1.3]: sums of one, two, three of them do not overlap
    codes_masked: float = 3.0  # tokens of a masked model share their gradient anyway: farther apart
    codes_tied: float = 0.005  # in a table also read from, in sizes: small beside its other entries
    decoy_logit: float = 40.0  # of the token every place predicts: the others' sum is rounding
    label_logit: float = 5.0  # the largest of any other: far below the decoy's
    constant: float = 10.0  # read everywhere by a decoder without bias: shares the decoy's 40

    # bins, from rows of a gradient
    signal: float = 0.02  # of the largest difference: a bin below it holds nothing but rounding
    jump_square: float = 2.0  # times the square that noise alone would have: kept above it
    jumps_sought: float = 1.5  # times those expected: weak ones are given up afterwards
    jump_sweeps: int = 2  # the first splits were made while all others were missing
    sigmas: float = 6.0  # of noise, by median deviation: beyond chance in any vocabulary
    many_words: int = 256  # above the noise; with fewer, all of the vocabulary can be tried

    # pairs of token and position
    exact: float = 1e-3  # of a bin's norm: less left is rounding, and the bin read beyond doubt
    pair_cells: int = 2**23  # vectors times positions times tokens at a time: 32 MB in float32
    degenerate: float = 1e-4  # share of a pair's square off those read: less divides by rounding
    most_pairs: int = 4  # in one bin: with more, few bins are exact
    pair_sweeps: int = 2  # over a bin's pairs, each chosen anew while the others stay
    open_share: float = 0.8  # of bins no one pair explains: above it, exactness is the exception
    least_factor: float = 0.4  # of several pairs, of the usual: codes differ by 1.3 at most
    least_factor_masked: float = 0.2  # sequences of a masked model differ in gradient too
    exact_readings: float = 0.05  # of all: with dropout or noise none is

    # groups of sequences, by their marks
    same: float = 1e-2  # distance of one group's marks, in sizes of all: above rounding
    near: float = 4.0  # times that: a token alone in its bin may be so far from its group
    few_alike: float = 0.15  # of a sequence's tokens: fewer alike are equal tokens of two sequences
    held_places: float = 0.1  # least share with sure tokens in a group that is certified
    most_choices: int = 2**20  # of groups for the tokens of one bin: as many are tried
    sharp_sum: float = 0.1  # of what a sum may miss: a right one misses less
    rare: float = 0.25  # of the readings of a place's commonest token: rarer ones are not sure
    twins: float = 4e-3  # of a factor, 4 * exact: farther apart, a swap leaves something

    # labels, by their codes
    clear: float = 4.0  # times the usual miss: nearer is right, farther is wrong
    agree: float = 0.01  # by which codes of known labels may be missed: above it is dropout
    rounding: float = 1e-4  # of the commonest label's share: below it is rounding
    factor_rounds: int = 5  # in which factors of blocks and sequences settle
    factor_range: float = 0.2  # in logarithms: a masked model's factor is known but roughly
    factors_tried: int = 101  # in that range, each 0.4 % from the next

    # best pairs, where nothing is exact
    not_dropped: float = 1e-3  # of a vector's entries in size: what is nearer was not dropped
    held_entries: float = 0.6  # that a sum must explain exactly: dropout of inputs leaves more
    fit_rounds: int = 8  # each on the entries that agreed in the one before
    fit_outlier: float = 2.5  # times the median miss: what is farther was dropped
    alone_share: float = 0.75  # explained of a bin with one token: a pair has half of one with two
    second_share: float = 0.1  # explained by a bin's second token: less is a guess too many

    # rows of the token table, with dropout
    dropped_entries: float = 1e-3  # zeros among them: rounding makes none
    row_exact: float = 1e-5  # of a row's entries in size: less missed is rounding
    row_held: float = 0.5  # explained: three lookups leave 0.73 that none of them dropped
    row_whole: float = 0.99  # explained of a row that holds one lookup: nothing else is in it
    row_spare: int = 8  # entries explained beyond those that any fit explains
    row_rounds: int = 10  # each on the entries that agreed in the one before
    row_outlier: float = 2.0  # times the median miss: what is farther was dropped
    most_places: int = 3  # of one token: with more, too few entries are left whole
    most_fits: int = 5000  # combinations of places that are tried for a row
    fit_cells: int = 2**24  # numbers at a time: 128 MB in float64
    entries_agreed: int = 3  # in which marks are one group's: fewer agree by chance
    group_votes: int = 3  # tokens that make a group


CHOSEN = Thresholds()
